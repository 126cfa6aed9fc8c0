"""Access to files in object stores: S3 and compatible stores, Google Cloud Storage and Azure."""
