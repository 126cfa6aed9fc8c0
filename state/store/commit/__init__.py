"""A commit, from messages to a published snapshot."""
