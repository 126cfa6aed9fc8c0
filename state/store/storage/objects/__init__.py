"""Objects of S3, of what speaks it, of Google's storage and of Azure, as files."""
