"""Merges sorted runs; the merge engine decides which row the rows of a key become."""
