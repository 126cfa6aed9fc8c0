"""Manifests of which some partitions are wanted: the same entries as if all had been decoded, and damage is told."""

import random
from collections.abc import Collection
from dataclasses import replace
from io import BytesIO
from itertools import groupby

import fastavro
import pytest

from bucketline.state.commit.manifest_merge import in_partition_order, live_entries, merge_entries
from bucketline.state.errors import CorruptFileError
from bucketline.state.format.avro.container import BLOCK_RECORDS, iterate_records
from bucketline.state.format.data_file import SimpleStats
from bucketline.state.format.entries import FileKind, ManifestEntry
from bucketline.state.format.manifest import decode_chosen, decode_manifest, encode_manifest
from bucketline.state.format.manifest_schema import ENTRY_FORMAT
from bucketline.state.format.metadata_records import Encoding
from bucketline.state.types.binary_row import encode_row
from bucketline.state.types.logical import DataType, parse_type_text
from tests.support.tables.commits import data_file, entry

_VALUES: dict[str, list[object]] = {
    "INT NOT NULL": [-1, 0, 7, 40],
    "BIGINT": [None, 2**40, -3],
    "STRING": [None, "", "é", "2024-01-01", "a longer text of 26 letters"],
    "DATE": [None, 0, 19_000],
    "BOOLEAN": [None, False, True],
    "DOUBLE": [None, -0.0, 0.0, float("nan")],
    "DECIMAL(30, 2)": [None],
}


def _types(draw: random.Random) -> list[tuple[DataType, list[object]]]:
    texts = draw.sample(sorted(_VALUES), draw.randint(1, 3))
    return [(parse_type_text(text), _VALUES[text]) for text in texts]


def _entries(draw: random.Random, columns: list[tuple[DataType, list[object]]], count: int) -> list[ManifestEntry]:
    """Entries of drawn partitions. A file is added, and sometimes deleted by a later entry. Bounds of files have bytes
    that look like the begin of an entry.
    """
    found: list[ManifestEntry] = []
    there: list[ManifestEntry] = []
    for number in range(count):
        if there and draw.random() < 0.3:
            gone = there.pop(draw.randrange(len(there)))
            found.append(replace(gone, kind=FileKind.DELETE))
            continue
        partition = encode_row([draw.choice(values) for _, values in columns], [t for t, _ in columns])
        odd = draw.random() < 0.02
        low = b"\x04\x00" + bytes([2 * len(partition)]) + partition if odd else b"\x04\x02"
        file = replace(data_file(f"data-{number}"), value_stats=SimpleStats(low, partition, (None, 2)))
        there.append(entry(FileKind.ADD, file, partition=partition, bucket=draw.randrange(3)))
        found.append(there[-1])
    return found


@pytest.mark.parametrize("seed", range(12))
def test_entries_of_wanted_partitions_are_those_of_the_whole_manifest(seed: int) -> None:
    draw = random.Random(seed)
    columns = _types(draw)
    types = [t for t, _ in columns]
    entries = _entries(draw, columns, draw.choice([0, 1, 5, 2 * BLOCK_RECORDS // 8]))
    partitions = sorted({e.partition for e in entries})
    data = encode_manifest(in_partition_order(entries, types) if seed % 2 else entries)
    whole = decode_manifest(data)
    for size in (0, 1, 2, len(partitions)):
        wanted = frozenset(draw.sample(partitions, min(size, len(partitions))))
        found = decode_chosen(data, types, wanted.intersection)
        expected = [e for e in whole if e.partition in wanted]
        assert found.entries == expected
        deleted = sum(e.kind is FileKind.DELETE for e in whole)
        assert (found.added, found.deleted) == (len(whole) - deleted, deleted)
        assert live_entries(found.entries) == [e for e in live_entries(whole) if e.partition in wanted]


@pytest.mark.parametrize("seed", range(6))
def test_entries_in_the_order_of_partitions_merge_to_the_same_files(seed: int) -> None:
    draw = random.Random(seed)
    columns = _types(draw)
    entries = _entries(draw, columns, 100)
    ordered = in_partition_order(entries, [t for t, _ in columns])
    assert sorted(map(repr, ordered)) == sorted(map(repr, entries))
    runs = [partition for partition, _ in groupby(ordered, key=lambda e: e.partition)]
    assert sorted(runs) == sorted({e.partition for e in entries})
    assert sorted(map(repr, merge_entries(ordered))) == sorted(map(repr, merge_entries(entries)))


def _unpacked(entries: list[ManifestEntry]) -> bytes:
    """A manifest of another writer, whose blocks are not packed and have no checksum."""
    out = BytesIO()
    records = list(iterate_records(encode_manifest(entries), ENTRY_FORMAT))
    fastavro.writer(out, ENTRY_FORMAT.schema, records, codec="null", sync_interval=1, sync_marker=bytes(16))
    return out.getvalue()


_TYPES = [parse_type_text("INT"), parse_type_text("STRING")]
_PARTITIONS = [encode_row((number, "a long text"), _TYPES) for number in range(3)]
_WANTED = frozenset((_PARTITIONS[1],))


def test_damage_in_a_wanted_entry_is_told_or_found_as_if_all_entries_were_decoded() -> None:
    entries = [entry(FileKind.ADD, data_file(f"data-{n}"), partition=p) for n, p in enumerate(_PARTITIONS)]
    data = _unpacked(entries)
    first = data.index(_PARTITIONS[1]) - 3
    last = data.index(_PARTITIONS[2]) - 3
    outcomes = set()
    for at in range(first, last):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            expected = _outcome(bytes(damaged), whole=True)
            assert _outcome(bytes(damaged), whole=False) == expected, (at, bit)
            outcomes.add(expected == "damaged")
    assert outcomes == {True, False}


def _outcome(data: bytes, *, whole: bool) -> object:
    def choose(partitions: Collection[bytes]) -> Collection[bytes]:
        return _WANTED.intersection(partitions)

    try:
        if whole:
            return [e for e in decode_manifest(data) if e.partition in _WANTED]
        return decode_chosen(data, _TYPES, choose).entries
    except CorruptFileError:
        return "damaged"


def test_entries_that_are_not_wanted_are_not_decoded() -> None:
    entries = [entry(FileKind.ADD, data_file(f"data-{n}"), partition=p) for n, p in enumerate(_PARTITIONS)]
    data = _unpacked(entries).replace(b"data-2", b"/ata-2")
    with pytest.raises(CorruptFileError, match="/ata-2"):
        decode_manifest(data)
    assert decode_chosen(data, _TYPES, _WANTED.intersection).entries == entries[1:2]
    together = encode_manifest(entries, Encoding(codec="null")).replace(b"data-2", b"/ata-2")
    assert decode_chosen(together, _TYPES, _WANTED.intersection).entries == entries[1:2]
    with pytest.raises(CorruptFileError, match="/ata-2"):
        decode_chosen(data, _TYPES, lambda partitions: partitions)


def test_entries_of_a_writer_with_another_order_of_fields_are_found() -> None:
    entries = [entry(FileKind.ADD, data_file(f"data-{n}"), partition=p) for n, p in enumerate(_PARTITIONS)]
    out = BytesIO()
    fields = ENTRY_FORMAT.schema["fields"]
    assert isinstance(fields, list)
    fastavro.writer(
        out, {**ENTRY_FORMAT.schema, "fields": fields[::-1]}, list(iterate_records(_unpacked(entries), ENTRY_FORMAT))
    )
    assert decode_chosen(out.getvalue(), _TYPES, _WANTED.intersection).entries == entries[1:2]
