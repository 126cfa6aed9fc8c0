"""Index files: deletion vectors and HASH indexes."""
