"""Reads rows of a table: which files, which deleted rows, merged by key."""
