"""Applies a condition to the rows of changes: decides which rows stay, and which become deletes.

*New images* (`NEW`): the condition is applied only to rows after a change. An insert that does not meet the condition
is left out. An update, or a row of a snapshot, that does not meet it becomes a delete of its key. Deletes always stay.

*Own images* (`OWN`, for merge engines that retract): the condition is applied to every row by itself. If only the older
row of an update meets the condition, the older row becomes a delete.

If an update changes the key of the source but not the computed key, the delete of the older row is dropped, or becomes
-U if the table uses -U.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketline.state.types.row_kind import RowKind
from bucketline.streaming.decode.columns.compute_rows import Bools, same_values
from bucketline.streaming.decode.columns.computed_columns import JudgedImages

Kinds = npt.NDArray[np.int8]
Longs = npt.NDArray[np.int64]

_I, _UB, _UA, _D = (int(k) for k in (RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE))


def without_moves(kinds: Kinds, origin: Longs, keys: Sequence[pa.Array], *, keeps_old: bool) -> tuple[Kinds, Bools]:
    """Corrects updates that look like a change of the key. Returns the kinds of the rows, and a mask of the rows that
    stay.

    An update that changes the source's key comes as a delete and, next to it, the new row; `origin` has the number of
    each row's record. `keys` are the computed key columns. If both rows have the same values in these columns, the
    delete is dropped, or becomes the older row of the update (-U) if `keeps_old` is true.
    """
    kinds, stays = kinds.copy(), np.ones(len(kinds), np.bool_)
    first = np.flatnonzero((kinds[:-1] == _D) & (kinds[1:] == _UA) & (origin[:-1] == origin[1:]))
    if not len(first):
        return kinds, stays
    old, new = pa.array(first), pa.array(first + 1)
    same = np.ones(len(first), np.bool_)
    for key in keys:
        same &= same_values(key.take(old), key.take(new))
    if keeps_old:
        kinds[first[same]] = _UB
    else:
        stays[first[same]] = False
    return kinds, stays


def judged(kinds: Kinds, origin: Longs, passes: Bools, images: JudgedImages, inserted: Bools) -> tuple[Kinds, Bools]:
    """Applies the condition of a job to the rows of changes. `passes` is true for rows that meet the condition.
    `images` says to which rows the condition is applied, and `inserted` marks the rows that are new according to the
    source.

    Returns new row kinds, and a mask of the rows that stay. For example, an updated row that does not meet the
    condition gets the kind -D, and an inserted row that does not meet it is left out.
    """
    kinds = kinds.copy()
    if images is JudgedImages.INSERTS:
        return kinds, passes
    if images is JudgedImages.OWN:
        older = np.flatnonzero((kinds[:-1] == _UB) & (kinds[1:] == _UA) & (origin[:-1] == origin[1:]) & ~passes[1:])
        kinds[older] = _D
        return kinds, passes
    is_new = (kinds == _I) | (kinds == _UA)
    stays: Bools = ~is_new | passes | ~inserted
    kinds[is_new & ~passes & ~inserted] = _D
    # If the change also has its older row, that row becomes the delete.
    older = np.flatnonzero((kinds[:-1] == _UB) & (kinds[1:] == _D) & (origin[:-1] == origin[1:]))
    kinds[older], stays[older + 1] = _D, False
    return kinds, stays


def lacking_old(kinds: Kinds, origin: Longs) -> Bools:
    """Returns for each row whether it is an update without its older row."""
    alone: Bools = kinds == _UA
    alone[1:] &= ~((origin[1:] == origin[:-1]) & ((kinds[:-1] == _UB) | (kinds[:-1] == _D)))
    return alone


def is_new_image(kinds: Kinds) -> Bools:
    """Returns for each row whether it is a row after a change: +I or +U."""
    new: Bools = (kinds == _I) | (kinds == _UA)
    return new
