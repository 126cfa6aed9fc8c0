"""Files beside the data: deletion vectors and hash indexes."""
