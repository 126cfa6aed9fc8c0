"""For tasks that each write many buckets. A task gets the rows of all its buckets in one sealed run (packed rows),
separates the rows by bucket, and sorts them.
"""
