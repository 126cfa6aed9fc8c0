"""`rescued-data-column`: stores as one JSON string the parts of a record that no column takes, so that the record need
not be bad.

These parts are fields that nothing reads, and values that do not fit their column. A column whose value does not fit is
null. A value that keys, partitions or `sequence.field` need is not rescued: its record stays bad.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.job import RecordFormat
from bucketline.state.types.buffers import one_array
from bucketline.state.types.logical import DataField
from bucketline.streaming.decode.json_values.late_columns import cut_out
from bucketline.streaming.decode.row_changes import as_binary
from bucketline.streaming.decode.texts.json_scan import ScannedJson, slices

Path = tuple[str, ...]

IMAGES: Mapping[RecordFormat, tuple[Path, ...]] = {
    RecordFormat.JSON: ((),),
    RecordFormat.DEBEZIUM_JSON: (("after",), ("payload", "after")),
    RecordFormat.DEBEZIUM_FLAT_JSON: ((), ("payload",)),
    RecordFormat.MAXWELL_JSON: (("data",),),
}
"""The path of the new row in a message, for formats whose values can be rescued."""
_OLD_IMAGES: Mapping[RecordFormat, tuple[Path, ...]] = {
    RecordFormat.DEBEZIUM_JSON: (("before",), ("payload", "before")),
    RecordFormat.MAXWELL_JSON: (("old",),),
}
_FIELD = re.compile(r"^field (?:(?:payload\.)?(?:after|before|data|old|payload)\.)?([^.:\[]+)[^:]*: ")
_PLAIN_FIELD = re.compile(r"^field ([^.:\[]+)[^:]*: ")
_NULL = b"null"


@dataclass(frozen=True, slots=True)
class Rescued:
    """The column for rescued values (fields that no column takes, and values that do not fit their column), and its
    position in the table.

    - `known` are fields that are read, or left out on purpose.
    - `fixed` are fields whose values are not rescued, so that their record stays bad.
    - Fields that begin with `skipped` do not belong to the row.
    """

    field: DataField
    at: int
    known: tuple[str, ...]
    fixed: tuple[str, ...]
    skipped: str | None = None


@dataclass(slots=True)
class Mending:
    """Records in which values that did not fit their column have been replaced by nulls.

    - `values` are the texts of the records, with the nulls.
    - `taken` has, by the name of a field, the numbers of the records in which the value of this field was replaced.
    - `reasons` says, by the number of a record, why the record would be bad without the replacement.
    """

    values: pa.Array
    taken: dict[str, set[int]]
    reasons: dict[int, str]

    def mend(self, decode: RecordFormat, rescued: Rescued, bad: Mapping[int, str]) -> bool:
        """Puts nulls in place of the values that did not fit, so that their records are no longer bad. `bad` has the
        reason why a record is bad, by the index of the record; a reason names the field with the value. Returns False
        if no value was replaced.
        """
        wanted: dict[str, list[int]] = {}
        for record, reason in bad.items():
            self.reasons.setdefault(record, reason)
            name = _named(reason, decode)
            is_new = name is not None and record not in self.taken.get(name, ())
            if name is not None and is_new and name in rescued.known and name not in rescued.fixed:
                wanted.setdefault(name, []).append(record)
        mended = False
        for name, records in wanted.items():
            mended |= self._cut(decode, name, sorted(records))
        return mended

    def _cut(self, decode: RecordFormat, name: str, records: list[int]) -> bool:
        at = pa.array(records, pa.int64())
        try:
            scan = ScannedJson.of(self.values.take(at))
            paths = {(*image, name) for image in (*IMAGES[decode], *_OLD_IMAGES.get(decode, ()))}
            found = [path for path in sorted(paths) if len(scan.values_at(path).starts)]
            cut = cut_out(scan, dict.fromkeys(found)) if found else None  # type: ignore[arg-type]
        except ValueError:
            return False
        if cut is None:
            return False
        mask = np.zeros(len(self.values), np.bool_)
        mask[records] = True
        self.values = pc.replace_with_mask(self.values, pa.array(mask), cut)
        self.taken.setdefault(name, set()).update(records)
        return True


def _named(reason: str, decode: RecordFormat) -> str | None:
    """Takes the reason why a row is bad, and returns the name of the field to which the reason refers. Returns None if
    the reason refers to no field, or says that a NOT NULL field is null.
    """
    found = (_FIELD if decode in _OLD_IMAGES else _PLAIN_FIELD).match(reason)
    return None if found is None or reason.endswith("null, but the column is NOT NULL") else found[1]


def rescued_texts(
    decode: RecordFormat,
    rescued: Rescued,
    records: pa.Table,
    taken: Mapping[str, set[int]],
    good: npt.NDArray[np.int64],
) -> pa.Array:
    """Returns for each record the text for the rescued-data column: a JSON object with the parts of the record that no
    other column takes. The text is null if all parts of the record are in other columns.

    `taken` has, by the name of a field, the numbers of the records in which the value of this field did not fit. `good`
    are the numbers of the records that were decoded, in ascending order.
    """
    values = as_binary(one_array(records["value"])).take(pa.array(good))
    texts = pa.nulls(records.num_rows, pa.string())
    try:
        return _scanned(decode, rescued, records, taken, good, values)
    except ValueError:
        # If a value is nested too deeply to be parsed, it is found by halving, and rescued as a whole.
        if len(good) > 1:
            half = len(good) // 2
            parts = (rescued_texts(decode, rescued, records, taken, part) for part in (good[:half], good[half:]))
            return pc.coalesce(*parts)
    mask = np.zeros(records.num_rows, np.bool_)
    mask[good] = True
    whole = json.dumps({"_record": values[0].as_py().decode("utf-8", "replace")}, ensure_ascii=False)
    return pc.replace_with_mask(texts, pa.array(mask), pa.array([whole]))


def _scanned(
    decode: RecordFormat,
    rescued: Rescued,
    records: pa.Table,
    taken: Mapping[str, set[int]],
    good: npt.NDArray[np.int64],
    values: pa.Array,
) -> pa.Array:
    """Returns for each record its rescued text: a JSON string of the fields that no column takes, and of the values
    that do not fit; null if there are none. `good` are the numbers of the records that are not bad, and `values` are
    the JSON values of these records, which are scanned all at once. See `rescued_texts` for the other arguments. Raises
    ValueError if a value cannot be scanned.
    """
    scan = ScannedJson.of(values)
    texts = pa.nulls(records.num_rows, pa.string())
    for path in IMAGES[decode]:
        images = scan.values_at(path)
        images = images.chosen(scan.data[images.starts] == ord("{"))
        if len(images.starts):
            texts = pc.coalesce(_of_images(rescued, records, taken, good[images.texts], images.of(scan.data)), texts)
    return texts


def _of_images(
    rescued: Rescued,
    records: pa.Table,
    taken: Mapping[str, set[int]],
    numbers: npt.NDArray[np.int64],
    images: pa.Array,
) -> pa.Array:
    """Returns for each record its rescued text: a JSON string of the fields that no column takes, and of the values
    that do not fit; null if there are none. `images` are rows as JSON objects, and `numbers` has for each row the
    number of its record.
    """
    scan = ScannedJson.of(images)
    keys, found = scan.entries()
    names = slices(scan.data, keys.starts + 1, keys.ends - 1).cast(pa.string())
    owners = numbers[keys.texts]
    is_known = np.asarray(pc.is_in(names, value_set=pa.array(rescued.known, pa.string())))
    is_null = np.asarray(pc.equal(found.of(scan.data), _NULL))
    chosen = ~is_known & ~is_null
    if rescued.skipped is not None:
        chosen &= ~np.asarray(pc.starts_with(names, rescued.skipped))
    for name, of in taken.items():
        is_taken = np.isin(owners, np.fromiter(of, np.int64, len(of)))
        chosen |= is_taken & np.asarray(pc.equal(names, name))
    parts = slices(scan.data, keys.starts[chosen], found.ends[chosen]).cast(pa.string())
    at, counts = np.unique(owners[chosen], return_counts=True)
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, parts), ",")
    texts = pc.binary_join_element_wise("{", joined, _places(records, at), "}", "")
    number = np.full(records.num_rows, -1)
    number[at] = np.arange(len(at))
    return texts.take(pa.array(number, mask=number < 0))


def _places(records: pa.Table, at: npt.NDArray[np.int64]) -> pa.Array:
    """Returns the topic, partition and offset of each record as fields of JSON; empty strings for sources other than
    Kafka.
    """
    nothing = pa.repeat("", len(at))
    if not {"topic", "partition", "offset"} <= set(records.column_names):
        return nothing
    of = records.select(["topic", "partition", "offset"]).take(pa.array(at))
    topic, partition, offset = (one_array(column).cast(pa.string()) for column in of.columns)
    shown = pc.binary_join_element_wise(
        ',"_kafka_topic":"', topic, '","_kafka_partition":', partition, ',"_kafka_offset":', offset, ""
    )
    return pc.coalesce(shown, nothing)
