"""Compaction plans, leases on the items of a plan, and results of items: their data, the encoding of the data as JSON,
and the rules of leases.
"""
