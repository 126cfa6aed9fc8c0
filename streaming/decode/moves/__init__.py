"""Values of rows whose key changed."""
