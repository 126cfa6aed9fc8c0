"""Tasks of a job that writes many tables: one read and one shuffle for all of them."""
