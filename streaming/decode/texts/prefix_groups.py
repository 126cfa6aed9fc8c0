"""Groups texts by their prefix, which is the schema before each payload.

A prefix is many times longer than the remaining text, and a block may have hundreds of prefixes that differ in a few
bytes. So `group_by_prefix` finds the first position where two texts of a group differ, and splits the group by the
eight bytes at that position. The texts of a hundred tables are then separated in a few steps, and each text is compared
as a whole only once. Work that costs as much for a small group as for a large group is done for all groups together:
for example, the prefixes of all texts are cut off at once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_SAMPLES = 8
_WORD_BYTES = 8
_BLOCK_BYTES = 1 << 20
"""The bytes of texts that are compared with a prefix at once; they stay in the processor's cache."""

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PrefixGroup:
    """The texts with a prefix, by their positions in ascending order."""

    prefix: bytes
    positions: Positions


def group_by_prefix(
    texts: pa.Array, positions: Positions, prefix_of: Callable[[bytes], bytes | None]
) -> Iterator[PrefixGroup]:
    """Takes texts as binary values without nulls, and yields groups of texts with the same prefix. Only the texts at
    `positions` are grouped.

    `prefix_of` finds the prefix of one text, and is called for few texts of each prefix. A text without a prefix is
    in no group. The texts of one prefix may be in several groups.
    """
    bytes_of = _Bytes.of(texts)
    pending = [positions]
    while pending:
        group = pending.pop()
        prefix = None
        while len(group):
            prefix = prefix_of(bytes_of.text(int(group[0])))
            if prefix is not None:
                break
            group = group[1:]
        if prefix is None:
            continue
        differs = _first_difference(bytes_of, group, prefix)
        if differs is not None:
            pending.extend(bytes_of.split(group, differs))
            continue
        matches = _start_with(texts, bytes_of, group, prefix)
        if matches.all():
            yield PrefixGroup(prefix, group)
            continue
        yield PrefixGroup(prefix, group[matches])
        others = group[~matches]
        differs = _mismatch(bytes_of.text(int(others[0])), prefix)
        pending.extend(bytes_of.split(others, differs))


def rests_of(texts: pa.Array, positions: Positions, lengths: Positions) -> pa.Array:
    """Returns the texts at these positions (in ascending order) without their prefixes. `lengths` has the length of
    each prefix.
    """
    if not len(positions):
        return pa.array([], pa.binary())
    large = texts.cast(pa.large_binary())
    _, offsets, data = large.buffers()
    ends = np.frombuffer(offsets, np.int64, len(large) + 1, large.offset * 8)
    # Every second text of this array remains; the texts between them are the prefixes that are cut off.
    borders = np.empty(2 * len(positions), np.int64)
    borders[::2], borders[1::2] = ends[positions] + lengths, ends[positions + 1]
    pieces = pa.Array.from_buffers(pa.large_binary(), len(borders) - 1, [None, pa.py_buffer(borders), data])
    return pieces.take(pa.array(np.arange(0, len(borders), 2))).cast(pa.binary())


def _start_with(texts: pa.Array, bytes_of: "_Bytes", group: Positions, prefix: bytes) -> npt.NDArray[np.bool_]:
    """Returns a mask of the texts in the group: true for texts that begin with the prefix."""
    if len(group) < len(texts):
        return bytes_of.start_with(group, prefix)
    matches: npt.NDArray[np.bool_] = pc.starts_with(texts, pattern=prefix).to_numpy(zero_copy_only=False)
    return matches


def _first_difference(texts: "_Bytes", group: Positions, prefix: bytes) -> int | None:
    """Compares a few texts of the group with the prefix, one after the other. Returns the position at which the first
    text that does not begin with the prefix differs from it; None if all of these texts begin with the prefix.
    """
    count = min(_SAMPLES, len(group))
    for number in range(count):
        at = (len(group) - 1) * number // max(count - 1, 1)
        text = texts.text(int(group[at]))
        if not text.startswith(prefix):
            return _mismatch(text, prefix)
    return None


def _mismatch(text: bytes, prefix: bytes) -> int:
    """Returns the first position at which the text differs from the prefix."""
    length = min(len(text), len(prefix))
    same = np.frombuffer(text, np.uint8, length) == np.frombuffer(prefix, np.uint8, length)
    return length if same.all() else int(np.argmin(same))


@dataclass(frozen=True, slots=True)
class _Bytes:
    """The bytes of texts: text i has the bytes from starts[i] up to ends[i]."""

    data: npt.NDArray[np.uint8]
    octets: memoryview
    starts: Positions
    ends: Positions

    @staticmethod
    def of(texts: pa.Array) -> "_Bytes":
        large = texts.cast(pa.large_binary())
        _, offsets, data = large.buffers()
        ends = (
            np.frombuffer(offsets, np.int64, len(large) + 1, large.offset * 8) if len(large) else np.zeros(1, np.int64)
        )
        octets = memoryview(b"" if data is None else data)
        return _Bytes(np.frombuffer(octets, np.uint8), octets, ends[:-1], ends[1:])

    def text(self, at: int) -> bytes:
        return self.octets[self.starts[at] : self.ends[at]].tobytes()

    def start_with(self, group: Positions, prefix: bytes) -> npt.NDArray[np.bool_]:
        """Returns a mask over the texts of the group, which is true for texts that begin with the prefix."""
        length, starts = len(prefix), self.starts[group]
        matches = self.ends[group] - starts >= length
        if not length or not matches.any():
            return matches
        starts = np.where(matches, starts, 0)
        heads = np.ndarray(len(self.data) - length + 1, f"V{length}", self.data, strides=(1,))
        wanted, at_once = np.frombuffer(prefix, np.uint8), max(1, _BLOCK_BYTES // length)
        for first in range(0, len(group), at_once):
            block = heads[starts[first : first + at_once]]
            if block.tobytes() != prefix * len(block):
                same = block.view(np.uint8).reshape(len(block), length) == wanted
                matches[first : first + at_once] &= same.all(axis=1)
        return matches

    def split(self, group: Positions, at: int) -> list[Positions]:
        """`group` are positions of texts. Returns these positions in groups of texts that have the same eight bytes
        from the byte `at` on. A byte beyond the end of a text counts as zero.
        """
        places = (self.starts[group] + at)[:, None] + np.arange(_WORD_BYTES)
        inside = places < self.ends[group][:, None]
        words = np.where(inside, self.data[np.where(inside, places, 0)], 0).astype(np.uint8)
        codes = np.ascontiguousarray(words).view(np.uint64).ravel()
        order = np.argsort(codes, kind="stable")
        borders = np.flatnonzero(np.diff(codes[order])) + 1
        return [np.sort(part) for part in np.split(group[order], borders)]
