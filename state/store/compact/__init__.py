"""Compaction: merges the files of one bucket into fewer files."""
