"""Runs a job: from the job file to a running query, and its end."""
