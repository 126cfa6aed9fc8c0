"""Carries out a commit: turns commit messages into a published snapshot."""
