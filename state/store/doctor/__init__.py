"""Finds what is wrong with a table. Repairs nothing."""
