"""The errors of a schema registry."""

from bucketline.conf.errors import BucketlineError


class RegistryError(BucketlineError):
    """The schema registry refuses to answer, or cannot be asked. Nothing of the batch has been written."""

    code = "REGISTRY"


class RegistryDownError(RegistryError):
    """The schema registry does not answer now; the batch can be repeated."""

    code = "REGISTRY_DOWN"
