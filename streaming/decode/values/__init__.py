"""Values of one kind, whole columns at a time."""
