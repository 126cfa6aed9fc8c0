"""Package `bucketline.conf`: the options of tables, jobs, sinks and storages.
The folder is mounted under `bucketline` and is never imported by its own name.
"""

if __name__ == "conf":
    raise ImportError("import bucketline.conf")
