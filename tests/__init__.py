"""The tests of discreet, laid out like the package."""
