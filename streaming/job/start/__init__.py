"""Checks of what a start needs, before Spark starts; and Spark's JVM, from its start to its end."""
