"""Removal of files: expiry of snapshots, and removal of orphan files."""
