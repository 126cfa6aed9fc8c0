"""Merges sorted runs; the merge engine decides what the rows of a key become."""
