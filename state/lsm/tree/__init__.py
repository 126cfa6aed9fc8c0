"""Where the files of a bucket lie, and which are compacted next."""
