"""Sorted runs become one, and the rows of a key become what its merge engine says."""
