"""Files in object stores: S3 and compatible stores, Google's storage and Azure."""
