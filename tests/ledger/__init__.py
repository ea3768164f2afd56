"""Tests of what noise promises."""
