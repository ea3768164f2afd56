"""Tests of the learners."""
