"""Removes files that a table no longer needs: expiry of snapshots, and removal of orphan files."""
