"""Package `bucketline.streaming`: everything that runs with Spark.
The folder is mounted under `bucketline` and is never imported by its own name.
"""

if __name__ == "streaming":
    raise ImportError("import bucketline.streaming")
