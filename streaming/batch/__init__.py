"""One micro-batch, from Spark's call to the report."""
