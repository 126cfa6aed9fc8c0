"""Compaction plans, claims on their items, and results: their values, their JSON, and the rules of leases."""
