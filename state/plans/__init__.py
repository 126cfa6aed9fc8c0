"""Compaction plans, claims and results as values, with their JSON and the rules of leases."""
