"""One streaming job that writes many tables, each exactly once."""
