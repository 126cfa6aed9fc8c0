"""Writes rows into level-0 files, one bucket at a time."""
