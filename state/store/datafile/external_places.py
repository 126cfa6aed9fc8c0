"""Chooses one of the table's external paths for each new file, if the table has external paths.

Source: Paimon 2.0 ExternalPathProvider, RoundRobinExternalPathProvider, EntropyInjectExternalPathProvider (murmur3_32
of Guava), WeightedExternalPathProvider.
"""

from itertools import accumulate

from bucketline.conf.table.choices import ExternalPlace
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import new_file_folder

_MASK = 0xFFFFFFFF
_HASH_BITS = 20
_FOLDER_BITS = 4
_FOLDERS = 3


class ExternalPlaces:
    """Chooses external paths for the new files of a bucket. The new files go to the external paths in turn, unless the
    paths have weights. `seed` (a fresh UUID) decides which path comes first.
    """

    def __init__(self, schema: TableSchema, partition: bytes, bucket: int, seed: str) -> None:
        paths = schema.settings.paths
        self._roots, self._strategy = paths.external_roots, paths.external_strategy
        self._weights = paths.external_weights if self._strategy is ExternalPlace.WEIGHTED else None
        self._folder = new_file_folder(schema, partition, bucket)
        self._next = murmur3_32(seed.encode()) % max(1, len(self._roots))

    def place(self, name: str) -> str | None:
        """Returns the full path of a new file with that name; None if the file goes to the table's own folder."""
        if not self._roots:
            return None
        if self._weights is not None and len(self._roots) > 1:
            part = murmur3_32(name.encode()) % sum(self._weights)
            chosen = next(i for i, end in enumerate(accumulate(self._weights)) if part < end)
            return f"{self._roots[chosen]}/{self._folder}/{name}"
        self._next = (self._next + 1) % len(self._roots)
        between = f"{hash_folders(name)}/" if self._strategy is ExternalPlace.ENTROPY_INJECT else ""
        return f"{self._roots[self._next]}/{self._folder}/{between}{name}"


def hash_folders(name: str) -> str:
    """Returns folder names made from the hash of a name, such as `0110/1001/0011/10100111`. Such folders spread files
    over an object store.
    """
    bits = f"{murmur3_32(name.encode()) | 1 << 31:032b}"[-_HASH_BITS:]
    parts = [bits[i : i + _FOLDER_BITS] for i in range(0, _FOLDERS * _FOLDER_BITS, _FOLDER_BITS)]
    return "/".join([*parts, bits[_FOLDERS * _FOLDER_BITS :]])


def murmur3_32(data: bytes) -> int:
    """Returns the hash of bytes by MurmurHash3 x86 32-bit with seed 0, as an unsigned integer."""
    whole = len(data) // 4 * 4
    value = 0
    for start in range(0, whole, 4):
        value ^= _scrambled(int.from_bytes(data[start : start + 4], "little"))
        value = (_rotated(value, 13) * 5 + 0xE6546B64) & _MASK
    if whole < len(data):
        value ^= _scrambled(int.from_bytes(data[whole:], "little"))
    value ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        value = ((value ^ (value >> shift)) * factor) & _MASK
    return value


def _scrambled(word: int) -> int:
    return (_rotated((word * 0xCC9E2D51) & _MASK, 15) * 0x1B873593) & _MASK


def _rotated(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & _MASK
