"""What removes files: expiry of snapshots, and removal of files that no snapshot names."""
