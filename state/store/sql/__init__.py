"""Carries out SQL statements without Spark."""
