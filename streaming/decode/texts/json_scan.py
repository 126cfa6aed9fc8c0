"""Finds the values of fields in many JSON objects at once.

The objects are known to be valid JSON, because another reader has read them before. So quotes that are not escaped come
in pairs, and brackets outside of strings come in pairs of the same depth. All objects are in one array of bytes, one
after the other; positions are positions in this array.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Positions = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_QUOTE, _BACKSLASH, _COLON, _OPEN_OBJECT = (np.uint8(sign) for sign in b'"\\:{')
_STEPS = np.zeros(256, dtype=np.int8)
_STEPS[list(b"{[")] = 1
_STEPS[list(b"}]")] = -1
_IS_BLANK = np.zeros(256, dtype=bool)
_IS_BLANK[list(b" \t\n\r")] = True
_ENDS_SCALAR = _IS_BLANK.copy()
_ENDS_SCALAR[list(b",}]")] = True
_CASE, _OPENS_OR_CLOSES = np.uint8(0x20), np.uint8(0x02)
"""The bits that distinguish curly from square brackets, and closing from opening brackets."""
_DEEPEST = 100
_LARGE_SHARE = 8
_PADDING = np.frombuffer(b"\n", np.uint8)


class NotScanned(ValueError):
    """The texts do not have the expected form, so another reader has to read them."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """Parts of texts. Each part has the number of its text (`texts`), and the positions where the part begins
    (`starts`) and ends (`ends`).
    """

    texts: Positions
    starts: Positions
    ends: Positions

    def of(self, data: Bytes) -> pa.Array:
        """Returns the bytes of the parts, as a binary column."""
        return slices(data, self.starts, self.ends)

    def chosen(self, mask: npt.NDArray[np.bool_]) -> "Ranges":
        return Ranges(self.texts[mask], self.starts[mask], self.ends[mask])


@dataclass(frozen=True, slots=True)
class ScannedJson:
    """JSON objects, with the positions of their strings and brackets."""

    data: Bytes
    bounds: Positions
    opening: Positions
    closing: Positions
    brackets: Positions
    depths: Positions
    levels: Positions
    partners: Positions

    @staticmethod
    def of(texts: pa.Array) -> "ScannedJson":
        """Scans JSON objects, which are binary values without nulls, and returns the scan."""
        data, bounds = bytes_of(texts)
        quotes = _plain_quotes(data)
        if len(quotes) % 2:
            raise NotScanned("a string is not closed")
        brackets = np.flatnonzero((((data | _CASE) - _OPEN_OBJECT) & ~_OPENS_OR_CLOSES) == 0)
        brackets = brackets[np.searchsorted(quotes, brackets) % 2 == 0]
        own = _STEPS[data[brackets]].astype(np.int64)
        depths = np.cumsum(own)
        levels = np.where(own > 0, depths, depths + 1)
        order = np.argsort(levels, kind="stable")
        if len(depths) and depths.max() > _DEEPEST:
            raise NotScanned("nested too deeply")
        if len(order) % 2 or (len(depths) and (depths[-1] != 0 or depths.min() < 0)):
            raise NotScanned("brackets do not match")
        partners = np.zeros(len(brackets), dtype=np.int64)
        partners[order[::2]], partners[order[1::2]] = brackets[order[1::2]], brackets[order[::2]]
        return ScannedJson(data, bounds, quotes[::2], quotes[1::2], brackets, depths, levels, partners)

    @property
    def roots(self) -> Ranges:
        """Returns the objects themselves."""
        is_root = (self.levels == 1) & (self.partners > self.brackets)
        starts = self.brackets[is_root]
        return Ranges(self._text_of(starts), starts, self.partners[is_root] + 1)

    def values_at(self, path: Sequence[str]) -> Ranges:
        """Returns where the values are to which a path of fields leads. Objects without this path give no value. If a
        field occurs twice, the last one counts.
        """
        found = self.roots
        for level, name in enumerate(path, 1):
            objects = found.chosen(self.data[found.starts] == _OPEN_OBJECT)
            found = self._fields(objects, name, level)
        return found

    def entries(self) -> tuple[Ranges, Ranges]:
        """Returns the entries of the objects as two lists of byte ranges: the keys, with their quotes, and the values.
        Only the entries of the outermost objects are returned.
        """
        starts, ends = self.opening, self.closing + 1
        colons = self._behind_blanks(ends)
        is_key = (self.data[colons] == _COLON) & (self._depth_at(starts) == 1)
        starts, ends, colons = starts[is_key], ends[is_key], colons[is_key]
        texts = self._text_of(starts)
        values = self._behind_blanks(colons + 1)
        return Ranges(texts, starts, ends), Ranges(texts, values, self._ends(values))

    def _fields(self, objects: Ranges, name: str, level: int) -> Ranges:
        """Finds the field `name` in JSON objects. Returns the position of its value in each object; objects without the
        field are left out. `level` is the number of brackets that are open where the fields of the objects are.
        """
        wanted = np.frombuffer(name.encode(), np.uint8)
        at = self.opening[self.closing - self.opening - 1 == len(wanted)]
        at = at[np.all(self.data[at[:, None] + 1 + np.arange(len(wanted))] == wanted, axis=1)]
        at = at[self._depth_at(at) == level]
        colons = self._behind_blanks(at + len(wanted) + 2)
        is_key = self.data[colons] == _COLON
        at, colons = at[is_key], colons[is_key]
        outer = self.brackets[(self.levels == level) & (self.partners > self.brackets)]
        owners = outer[np.searchsorted(outer, at) - 1] if len(outer) else at
        owner = np.searchsorted(objects.starts, owners)
        inside = owner < len(objects.starts)
        inside[inside] = objects.starts[owner[inside]] == owners[inside]
        last = np.full(len(objects.starts), -1)
        last[owner[inside]] = self._behind_blanks(colons[inside] + 1)
        has_field = last >= 0
        starts = last[has_field]
        return Ranges(objects.texts[has_field], starts, self._ends(starts))

    def _ends(self, starts: Positions) -> Positions:
        """Returns for each JSON value that begins at a position in `starts` the position after its last byte."""
        first = self.data[starts]
        ends = starts.copy()
        is_text, is_nested = first == _QUOTE, _STEPS[first] > 0
        ends[is_text] = self.closing[np.searchsorted(self.opening, starts[is_text])] + 1
        ends[is_nested] = self.partners[np.searchsorted(self.brackets, starts[is_nested])] + 1
        moving = np.flatnonzero(~is_text & ~is_nested)
        while len(moving):
            moving = moving[~_ENDS_SCALAR[self.data[ends[moving]]]]
            ends[moving] += 1
        return ends

    def _depth_at(self, at: Positions) -> Positions:
        """Returns the number of brackets that are open at these positions."""
        before = np.searchsorted(self.brackets, at) - 1
        depths: Positions = np.where(before < 0, 0, self.depths[np.maximum(before, 0)]) if len(self.depths) else at * 0
        return depths

    def _behind_blanks(self, at: Positions) -> Positions:
        moved = at.copy()
        moving = np.flatnonzero(_IS_BLANK[self.data[moved]])
        while len(moving):
            moved[moving] += 1
            moving = moving[_IS_BLANK[self.data[moved[moving]]]]
        return moved

    def _text_of(self, at: Positions) -> Positions:
        texts: Positions = np.searchsorted(self.bounds, at, side="right") - 1
        return texts


def bytes_of(texts: pa.Array) -> tuple[Bytes, Positions]:
    """Returns the bytes of all texts, followed by one more byte, so that the byte after the last text can be read. Also
    returns the positions in these bytes where the texts begin, followed by the position where the last text ends.
    """
    own, bounds = _in_place(texts)
    return np.concatenate([own, _PADDING]), bounds


def has_bytes(texts: pa.Array, wanted: bytes) -> bool:
    """Returns True if the bytes `wanted` occur in the texts. The search sees all texts as one string without
    separators. So the result is also True if `wanted` begins at the end of one text and ends in the next text.
    """
    own, _ = _in_place(pc.fill_null(texts, b"") if texts.null_count else texts)
    # The search of `re` reads the bytes where they are; that of `bytes` would need a copy.
    return re.search(re.escape(wanted), own.data) is not None


def _in_place(texts: pa.Array) -> tuple[Bytes, Positions]:
    """Returns the bytes of all texts, without copying them. Also returns the positions in these bytes where the texts
    begin, followed by the position where the last text ends.
    """
    large = texts.cast(pa.large_binary())
    if len(large) == 0:
        return _PADDING[:0], np.zeros(1, dtype=np.int64)
    _, offsets, data = large.buffers()
    bounds = np.frombuffer(offsets, np.int64, len(large) + 1, large.offset * 8)
    own = np.frombuffer(b"" if data is None else data, np.uint8)[bounds[0] : bounds[-1]]
    return own, bounds - bounds[0]


def slices(data: Bytes, starts: Positions, ends: Positions) -> pa.Array:
    """Returns the bytes from each start to its end, as a binary column. No slice may begin before the previous one
    ends.
    """
    lengths = ends - starts
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    if offsets[-1] * _LARGE_SHARE > len(data):
        steps = np.zeros(len(data) + 1, dtype=np.int8)
        is_some = lengths > 0
        steps[starts[is_some]] += 1
        steps[ends[is_some]] -= 1
        chosen = data[np.cumsum(steps[:-1], dtype=np.int8).view(np.bool_)]
    else:
        chosen = data[np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])]
    buffers = [None, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(np.ascontiguousarray(chosen))]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(starts), buffers).cast(pa.binary())


def without_blanks(texts: pa.Array) -> pa.Array:
    """Returns JSON texts without the blanks outside of their strings."""
    data, bounds = bytes_of(texts)
    blanks = np.flatnonzero(_IS_BLANK[data[:-1]])
    if not len(blanks):
        return texts
    quotes = _plain_quotes(data)
    blanks = blanks[np.searchsorted(quotes, blanks) % 2 == 0]
    if not len(blanks):
        return texts
    keep = np.ones(len(data) - 1, dtype=bool)
    keep[blanks] = False
    kept = np.concatenate([[0], np.cumsum(keep)])[bounds]
    return slices(data[:-1][keep], kept[:-1], kept[1:])


def _plain_quotes(data: Bytes) -> Positions:
    """Returns the positions of the quotes that no backslash escapes: an even number of backslashes comes before
    them.
    """
    is_quote, is_backslash = data == _QUOTE, data == _BACKSLASH
    doubtful = np.flatnonzero(is_quote[1:] & is_backslash[:-1]) + 1
    before = doubtful - 1
    while len(doubtful):
        is_quote[doubtful] ^= True
        before -= 1
        goes_on = (before >= 0) & is_backslash[before]
        doubtful, before = doubtful[goes_on], before[goes_on]
    return np.flatnonzero(is_quote)
