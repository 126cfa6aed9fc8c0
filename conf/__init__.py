"""Package `bucketline.conf`; the folder is mounted under `bucketline`, never imported by its own name."""

if __name__ == "conf":
    raise ImportError("import bucketline.conf")
