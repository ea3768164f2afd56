"""Tests of where rows come from and go to."""
