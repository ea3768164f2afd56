"""The HTML pages of a release: the internal report and the public statement, each a single file."""
