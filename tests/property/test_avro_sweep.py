"""Records of many drawn schemas against fastavro, and with flipped bits: a million records in `.ci/run sweeps-long`."""

import os
from random import Random

import pyarrow as pa

from bucketline.streaming.decode.avro.avro_bodies import Bodies, read_bodies
from bucketline.streaming.decode.avro.avro_exact import as_text
from bucketline.streaming.decode.avro.avro_schema import AvroKind, AvroSchema, Node, parse_avro_schema
from tests.property.test_avro_bodies import as_python, plain
from tests.support.models.avro_values import bodies_of, drawn_schema, odd_schema, read_by_fastavro
from tests.support.models.sweeps import share_of

_SHARE = 0.1
"""How many of the records get a flipped bit."""


def values_of(read: Bodies, schema: AvroSchema) -> dict[int, object]:
    """The values by position, to compare."""
    values = zip(read.positions.tolist(), read.values.to_pylist(), strict=True)
    return {position: plain(as_python(value, schema.root)) for position, value in values}


def with_texts(value: object, node: Node) -> object:
    """A value of fastavro's with texts where the schema has no Arrow type."""
    if node.is_text:
        return as_text(value)
    if node.kind is AvroKind.RECORD:
        assert isinstance(value, dict)
        return {name: with_texts(value[name], child) for name, child in node.read_fields}
    if node.kind is AvroKind.ARRAY:
        assert isinstance(value, list)
        return [with_texts(item, node.children[0]) for item in value]
    if node.kind is AvroKind.MAP:
        assert isinstance(value, dict)
        return {name: with_texts(item, node.children[0]) for name, item in value.items()}
    if node.kind is AvroKind.UNION and value is not None:
        return with_texts(value, next(child for child in node.children if child.kind is not AvroKind.NULL))
    return value


def flipped(random: Random, body: bytes) -> bytes:
    data = bytearray(body)
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(data)


def test_records_of_many_schemas_are_those_of_fastavro_and_a_flipped_bit_changes_its_record_alone() -> None:
    schemas, records = share_of(100), share_of(100)
    seed = int(os.environ.get("BUCKETLINE_AVRO_SEED") or Random().randrange(2**31))
    told = 0
    for number in range(schemas):
        random, where = Random(seed + number), f"BUCKETLINE_AVRO_SEED={seed + number}"
        schema = odd_schema(random) if number % 4 == 3 else drawn_schema(random)
        parsed = parse_avro_schema(schema)
        bodies = bodies_of(random, schema, records)
        whole = read_bodies(pa.array(bodies, pa.binary()), parsed)
        expected = [plain(with_texts(value, parsed.root)) for value in read_by_fastavro(schema, bodies)]
        assert values_of(whole, parsed) == dict(enumerate(expected)), where

        some = {at for at in range(records) if bodies[at] and random.random() < _SHARE}
        damaged = [flipped(random, body) if at in some else body for at, body in enumerate(bodies)]
        found = values_of(read := read_bodies(pa.array(damaged, pa.binary()), parsed), parsed)
        assert {at for at, _ in read.bad} <= some, where
        assert {at: found[at] for at in range(records) if at not in some} == {
            at: value for at, value in enumerate(expected) if at not in some
        }, where
        told += sum(at not in found or found[at] != expected[at] for at in some)
    assert told > 0
