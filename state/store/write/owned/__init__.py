"""Runs for tasks that own many buckets: rows of many buckets are sealed together, and separated and sorted by the
owner.
"""
