"""Files of one bucket into fewer files."""
