"""All steps of one micro-batch, from Spark's call of the sink to the report."""
