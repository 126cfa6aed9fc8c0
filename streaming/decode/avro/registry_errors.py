"""What goes wrong with a schema registry."""

from bucketline.conf.errors import BucketlineError


class RegistryError(BucketlineError):
    """The schema registry refuses to answer, or cannot be asked. Nothing of the batch has been written."""

    code = "REGISTRY"


class RegistryDownError(RegistryError):
    """The schema registry does not answer now; the batch can be done again."""

    code = "REGISTRY_DOWN"
