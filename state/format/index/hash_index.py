"""HASH index files: the hashes of the keys in a dynamic bucket, as big-endian 32-bit integers one after the other.

Source: Paimon 2.0 HashIndexFile, IntFileUtils.
"""

import numpy as np
from numpy.typing import NDArray

from bucketline.conf.wording import counted
from bucketline.state.errors import CorruptFileError

HASH = "HASH"
"""The index type in index manifests."""


def encode_hash_index(hashes: NDArray[np.int32]) -> bytes:
    """Returns the bytes of a HASH index file with these hashes, in the given order. `hashes` is a one-dimensional
    array.

    The file has no header, and each hash takes 4 bytes. The hashes may have any order. The index manifest stores the
    number of hashes as the row count of the file.
    """
    assert hashes.dtype == np.int32 and hashes.ndim == 1, f"{hashes.dtype}, {hashes.ndim} dimensions"
    return hashes.astype(">i4").tobytes()


def decode_hash_index(data: bytes) -> NDArray[np.int32]:
    """Returns the hashes of a HASH index file, in the order of the file, as a writable one-dimensional array.

    Raises CorruptFileError if the size is no multiple of four bytes, because the file was then cut short.
    """
    if len(data) % 4:
        raise CorruptFileError(
            f"a HASH index file of {counted(len(data), 'byte')} ends inside a hash",
            size=len(data),
            offset=len(data) // 4 * 4,
        )
    return np.frombuffer(data, dtype=">i4").astype(np.int32)
