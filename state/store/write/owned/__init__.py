"""Runs for tasks that own many buckets: sealed together, cut apart, sorted together again."""
