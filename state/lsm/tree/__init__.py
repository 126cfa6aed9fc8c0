"""The files of a bucket by level, and which are compacted next."""
