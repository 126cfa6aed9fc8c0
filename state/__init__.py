"""Package `bucketline.state`: Paimon tables on storage. The package `bucketline` contains a link to this folder. Never
import the folder by its own name, `state`.
"""

if __name__ == "state":
    raise ImportError("import bucketline.state")
