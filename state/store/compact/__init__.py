"""Compaction: files of one bucket → fewer files."""
