"""Access to files on storage: one protocol, its local and remote implementations, their errors and their clock."""
