"""Checks, before Spark starts, that a job has what it needs. Also starts and ends Spark's JVM."""
