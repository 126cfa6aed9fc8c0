"""Batches of files: which parts of which files they have, for tasks that read files themselves."""
