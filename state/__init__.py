"""Package `bucketline.state`; the folder is mounted under `bucketline`, never imported by its own name."""

if __name__ == "state":
    raise ImportError("import bucketline.state")
