"""Checks before Spark starts that a job has what it needs; and Spark's JVM, from its start to its end."""
