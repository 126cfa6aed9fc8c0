"""HASH index files: the key hashes a dynamic bucket holds, as big-endian ints back to back.

Source: Paimon 2.0 HashIndexFile, IntFileUtils.
"""

import numpy as np
from numpy.typing import NDArray

from bucketline.conf.wording import counted
from bucketline.state.errors import CorruptFileError

HASH = "HASH"
"""The index type in index manifests."""


def encode_hash_index(hashes: NDArray[np.int32]) -> bytes:
    """Returns the bytes of a HASH index file holding the hashes in the order given; shape (n,), 4 * n bytes.

    The file has no header and no order, and its row count in the index manifest is n.
    """
    assert hashes.dtype == np.int32 and hashes.ndim == 1, f"{hashes.dtype}, {hashes.ndim} dimensions"
    return hashes.astype(">i4").tobytes()


def decode_hash_index(data: bytes) -> NDArray[np.int32]:
    """Returns the hashes of a HASH index file in file order, shape (n,), writable.

    Raises CorruptFileError when the size is no multiple of four bytes: the last write was cut short.
    """
    if len(data) % 4:
        raise CorruptFileError(
            f"a HASH index file of {counted(len(data), 'byte')} ends inside a hash",
            size=len(data),
            offset=len(data) // 4 * 4,
        )
    return np.frombuffer(data, dtype=">i4").astype(np.int32)
