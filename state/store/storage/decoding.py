"""Adds the name of the file to errors of decoders, which get only bytes and do not know the file."""

from collections.abc import Iterator
from contextlib import contextmanager

from bucketline.state.errors import CorruptFileError


@contextmanager
def naming_file(path: str) -> Iterator[None]:
    """If the `with` block raises a CorruptFileError without a file name, adds the file's name to the error,
    and the offset 0 if the error has no offset.
    """
    try:
        yield
    except CorruptFileError as e:
        if e.path is not None:
            raise
        offset = e.offset or 0
        at = "" if "offset" in e.message else f"at offset {offset}: "
        raise e.reworded(f"{path}: {at}{e.message}", path=path, offset=offset) from e
