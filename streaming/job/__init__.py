"""From a job file to a running query, and to its end."""
