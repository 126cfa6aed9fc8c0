"""Compaction plans of a table: the files that hold them, and the work on their items (the compactions of single
buckets).
"""
