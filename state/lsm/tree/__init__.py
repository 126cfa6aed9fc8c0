"""The files of a bucket by level, and the decision which of them are compacted next."""
