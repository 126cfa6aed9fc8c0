"""Groups texts by their prefix, which is the schema before each payload.

A prefix is many times longer than the rest, and a block may have hundreds of prefixes that differ in a few bytes. So a
group of texts is split at the first position where two of its texts differ, by the eight bytes there: the texts of a
hundred tables are separated in a few steps, and each text is compared as a whole once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_SAMPLES = 8
_WORD_BYTES = 8

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PrefixGroup:
    """The texts with a prefix: their positions, ascending, and the rest of each text."""

    prefix: bytes
    positions: Positions
    rests: pa.Array


def group_by_prefix(
    texts: pa.Array, positions: Positions, prefix_of: Callable[[bytes], bytes | None]
) -> Iterator[PrefixGroup]:
    """The texts at the positions by their prefixes. Shapes: n binary without nulls in.

    `prefix_of` finds the prefix of one text, and is called for few texts of each prefix. A text without a prefix is in
    no group; the texts of one prefix may be in several groups.
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
        own = texts if len(group) == len(texts) else texts.take(pa.array(group))
        matches = pc.starts_with(own, pattern=prefix).to_numpy(zero_copy_only=False)
        rests = pc.binary_slice(own, len(prefix), 2**31 - 1)
        if matches.all():
            yield PrefixGroup(prefix, group, rests)
            continue
        yield PrefixGroup(prefix, group[matches], rests.filter(pa.array(matches)))
        others = group[~matches]
        differs = _mismatch(bytes_of.text(int(others[0])), prefix)
        pending.extend(bytes_of.split(others, differs))


def _first_difference(texts: "_Bytes", group: Positions, prefix: bytes) -> int | None:
    """The position at which a text of the group differs from the prefix; None if the few texts that are compared do
    not.
    """
    count = min(_SAMPLES, len(group))
    for number in range(count):
        at = (len(group) - 1) * number // max(count - 1, 1)
        text = texts.text(int(group[at]))
        if not text.startswith(prefix):
            return _mismatch(text, prefix)
    return None


def _mismatch(text: bytes, prefix: bytes) -> int:
    """The first position at which the text differs from the prefix."""
    length = min(len(text), len(prefix))
    same = np.frombuffer(text, np.uint8, length) == np.frombuffer(prefix, np.uint8, length)
    return length if same.all() else int(np.argmin(same))


@dataclass(frozen=True, slots=True)
class _Bytes:
    """The bytes of texts: those of text i are from starts[i] up to ends[i]."""

    data: npt.NDArray[np.uint8]
    starts: Positions
    ends: Positions

    @staticmethod
    def of(texts: pa.Array) -> "_Bytes":
        large = texts.cast(pa.large_binary())
        _, offsets, data = large.buffers()
        ends = (
            np.frombuffer(offsets, np.int64, len(large) + 1, large.offset * 8) if len(large) else np.zeros(1, np.int64)
        )
        return _Bytes(np.frombuffer(b"" if data is None else data, np.uint8), ends[:-1], ends[1:])

    def text(self, at: int) -> bytes:
        return self.data[self.starts[at] : self.ends[at]].tobytes()

    def split(self, group: Positions, at: int) -> list[Positions]:
        """The group split by the bytes at that position; texts that end before it count as zeros there."""
        places = (self.starts[group] + at)[:, None] + np.arange(_WORD_BYTES)
        inside = places < self.ends[group][:, None]
        words = np.where(inside, self.data[np.where(inside, places, 0)], 0).astype(np.uint8)
        codes = np.ascontiguousarray(words).view(np.uint64).ravel()
        order = np.argsort(codes, kind="stable")
        borders = np.flatnonzero(np.diff(codes[order])) + 1
        return [np.sort(part) for part in np.split(group[order], borders)]
