"""Package `bucketline.streaming`; the folder is mounted under `bucketline`, never imported by its own name."""

if __name__ == "streaming":
    raise ImportError("import bucketline.streaming")
