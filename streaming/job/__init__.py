"""A job file → a running query, and its end."""
