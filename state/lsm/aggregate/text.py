"""The aggregate function listagg, which joins strings.

Source: Paimon 2.0 FieldListaggAgg. Paimon 1.4 also joins blank strings.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.errors import OptionError
from bucketline.conf.table.field_options import FieldOptions
from bucketline.state.lsm.aggregate.entries_of_rows import arrival, entries_of, grouped, list_array, value_codes
from bucketline.state.lsm.aggregate.events import Events, Indices, Mask, Op, take_or_null, validity
from bucketline.state.lsm.aggregate.function import AggregateFunction
from bucketline.state.types.logical import MAX_LENGTH, DataField, TypeRoot

# The characters that Java counts as white space. A no-break space is not among them.
_WHITE_SPACE = (
    "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2008\u2009\u200a\u2028\u2029"
    "\u205f\u3000"
)


@dataclass(frozen=True, slots=True)
class ListAgg(AggregateFunction):
    """Joins, with the delimiter between them, all strings that are not blank. Strings of late rows (rows that count as
    older than all other rows) come first. The result is null if there is no string to join. If `distinct` is true, each
    string is split at the delimiter and repeated parts are left out.
    """

    delimiter: str
    distinct: bool

    names = ("listagg",)
    takes = frozenset({TypeRoot.VARCHAR})

    @classmethod
    def of(cls, field: DataField, options: FieldOptions) -> Self:
        if field.type.length != MAX_LENGTH:
            raise OptionError(
                f"'fields.{field.name}.aggregate-function' = 'listagg': column {field.name} is {field.type}, but "
                "listagg takes STRING only, because joined strings grow; declare the column as STRING",
                key=f"fields.{field.name}.aggregate-function",
                column=field.name,
            )
        if options.distinct and not options.delimiter:
            raise OptionError(
                f"'fields.{field.name}.list-agg-delimiter' is empty, but 'fields.{field.name}.distinct' = 'true' needs "
                "a delimiter between the parts; set one",
                key=f"fields.{field.name}.list-agg-delimiter",
                column=field.name,
            )
        return cls(options.delimiter, options.distinct)

    def fold(self, values: pa.Array, events: Events) -> pa.Array:
        live = validity(values) & events.live
        filled = live & _is_text(values)
        rows = np.flatnonzero(filled)
        rows = rows[np.lexsort((arrival(events, rows), events.key_of_row[rows]))]
        keys = events.key_of_row[rows]
        joined = pa.nulls(events.key_count, values.type)
        if len(rows):
            pieces, keys = (self._distinct if self.distinct else _whole)(values.take(pa.array(rows)), keys)
            present = np.zeros(events.key_count, bool)
            present[keys] = True
            lists = list_array(keys, events.key_count, pieces, present, pa.list_(values.type))
            joined = pc.binary_join(lists, self.delimiter).cast(values.type)
        # A blank string is not joined with others. But it is the result of a key without other strings if it comes
        # from the row that sets the accumulator or from a late row. The same is true for a null from a late row.
        late = events.last(events.live & (events.ops == Op.ADD_BEFORE))
        blank = np.where(late >= 0, late, events.seeds)
        return pc.coalesce(joined, take_or_null(values, blank))

    def _distinct(self, texts: pa.Array, keys: Indices) -> tuple[pa.Array, Indices]:
        """Splits the strings of each key and leaves out repeated parts. `keys` has the index of the key of each string.

        Returns the remaining strings and, for each of these strings, the index of its key. The remaining strings of a
        key are the first string, unchanged, and then each part of the other strings that has not appeared before.
        """
        tokens = pc.split_pattern(texts, self.delimiter)
        entries = entries_of(tokens, np.ones(len(texts), bool))
        parts = tokens.values.take(pa.array(entries.places))
        owners, numbers = keys[entries.rows], np.arange(len(parts))
        order, groups = grouped(owners, value_codes(parts), np.zeros(len(parts), np.int8), numbers)
        new = np.zeros(len(parts), bool)
        new[order[groups.starts]] = True
        first = np.ones(len(keys), bool)
        first[1:] = keys[1:] != keys[:-1]
        new &= ~first[entries.rows] & _is_text(parts)
        pieces = pa.concat_arrays([texts.filter(pa.array(first)), parts.filter(pa.array(new))])
        piece_keys = np.concatenate([keys[first], owners[new]])
        by_key = np.argsort(piece_keys, kind="stable")
        return pieces.take(pa.array(by_key)), piece_keys[by_key]


def _whole(texts: pa.Array, keys: Indices) -> tuple[pa.Array, Indices]:
    return texts, keys


def _is_text(values: pa.Array) -> Mask:
    has_text: Mask = pc.fill_null(pc.not_equal(pc.utf8_trim(values, characters=_WHITE_SPACE), ""), False).to_numpy(
        zero_copy_only=False
    )
    return has_text
