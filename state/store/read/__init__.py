"""Rows out of a table: which files, which deletions, merged by key."""
