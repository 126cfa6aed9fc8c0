"""Compaction plans of a table: the files that hold them, and the work on their items."""
