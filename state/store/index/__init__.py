"""Reads and writes index files: deletion vectors and HASH indexes."""
