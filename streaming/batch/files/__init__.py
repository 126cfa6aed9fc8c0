"""Batches of files: finds the parts of files that belong to a batch, so that tasks can read the files themselves."""
