"""For tasks that each write many buckets: the rows of all buckets of one task are sent to it in one sealed run (packed
rows), and the task separates the rows by bucket and sorts them.
"""
