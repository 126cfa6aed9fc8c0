"""Where bytes of a file meet the decoders, which know no files: their errors get the file's name."""

from collections.abc import Iterator
from contextlib import contextmanager

from bucketline.state.errors import CorruptFileError


@contextmanager
def naming_file(path: str) -> Iterator[None]:
    """Lets a CorruptFileError from inside say which file it is about, and where in it (0 when it is all of it)."""
    try:
        yield
    except CorruptFileError as e:
        if "path" in e.fields:
            raise
        offset = e.fields.get("offset", 0)
        at = "" if "offset" in e.message else f"at offset {offset}: "
        raise CorruptFileError(f"{path}: {at}{e.message}", **{"path": path, "offset": offset, **e.fields}) from e
