"""Package `bucketline.conf`: the options of tables, jobs, sinks and storages.
The package `bucketline` contains a link to this folder. Never import the folder by its own name, `conf`.
"""

if __name__ == "conf":
    raise ImportError("import bucketline.conf")
