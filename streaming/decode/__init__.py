"""Decoding: turns the values of records into rows of a table."""
