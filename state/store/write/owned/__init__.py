"""Sealed runs for tasks that write many buckets. The rows of many buckets are sent in one run; the receiving task
separates and sorts the rows.
"""
