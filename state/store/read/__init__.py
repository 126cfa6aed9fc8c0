"""Reads the rows of a table: chooses the files to read, leaves out deleted rows, and merges rows by key."""
