"""Avro bodies read side by side, one by one, and by fastavro are the same values; damage stays in its record."""

import math
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketline.streaming.decode.avro.avro_bodies import read_bodies
from bucketline.streaming.decode.avro.avro_exact import DamagedRecord, read_value
from bucketline.streaming.decode.avro.avro_schema import AvroKind, Node, only_fields, parse_avro_schema
from tests.support.models.avro_values import bodies_of, drawn_schema, read_by_fastavro

SEEDS = st.integers(min_value=0, max_value=2**32)


def plain(value: object) -> object:
    """A value to compare: maps have no order, and no number equals NaN."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def as_python(value: object, node: Node) -> object:
    """A value out of Arrow in the form of fastavro."""
    if value is None or node.is_text:
        return value
    if node.kind is AvroKind.UNION:
        children = [child for child in node.children if child.kind is not AvroKind.NULL]
        return as_python(value, children[0]) if children else None
    if node.kind is AvroKind.RECORD:
        return {name: as_python(value[name], child) for name, child in node.read_fields}
    if node.kind is AvroKind.ARRAY:
        return [as_python(item, node.children[0]) for item in value]
    if node.kind is AvroKind.MAP:
        return {name: as_python(item, node.children[0]) for name, item in value}
    return value


@given(SEEDS)
def test_bodies_side_by_side_are_the_values_that_fastavro_reads(seed: int) -> None:
    random = Random(seed)
    schema = drawn_schema(random)
    bodies = bodies_of(random, schema, 40)
    parsed = parse_avro_schema(schema)
    read = read_bodies(pa.array(bodies, pa.binary()), parsed)
    assert parsed.root.is_parallel
    assert read.bad == ()
    assert read.values.type == parsed.root.arrow
    read.values.validate(full=True)
    ours = [plain(as_python(value, parsed.root)) for value in read.values.to_pylist()]
    assert ours == [plain(value) for value in read_by_fastavro(schema, bodies)]


@given(SEEDS)
def test_a_damaged_body_has_the_same_result_alone_and_harms_no_other(seed: int) -> None:
    random = Random(seed)
    schema = drawn_schema(random)
    parsed = parse_avro_schema(schema)
    whole = bodies_of(random, schema, 40)
    bodies = [damaged(random, body) if random.random() < 0.3 else body for body in whole]
    read = read_bodies(pa.array(bodies, pa.binary()), parsed)
    bad = dict(read.bad)
    values = dict(zip(read.positions.tolist(), read.values.to_pylist(), strict=True))
    assert sorted([*bad, *values]) == list(range(40))
    for position, body in enumerate(bodies):
        alone = read_bodies(pa.array([body], pa.binary()), parsed)
        assert (position in bad) == bool(alone.bad), (schema, body, bad.get(position), alone.bad)
        if position in bad:
            assert bad[position] == alone.bad[0][1]
        else:
            assert plain(values[position]) == plain(alone.values[0].as_py())


def damaged(random: Random, body: bytes) -> bytes:
    data = bytearray(body)
    for _ in range(random.randrange(1, 4)):
        form = random.randrange(4)
        at = random.randrange(len(data) + 1)
        if form == 0 and data:
            data[at % len(data)] ^= 1 << random.randrange(8)
        elif form == 1:
            del data[at:]
        elif form == 2:
            data[at:at] = random.randbytes(random.randrange(1, 12))
        else:
            data[at:at] = b"\xff" * random.randrange(1, 12)
    return bytes(data)


@given(SEEDS)
def test_fields_that_are_not_read_change_nothing_of_the_others(seed: int) -> None:
    random = Random(seed)
    schema = drawn_schema(random)
    parsed = parse_avro_schema(schema)
    bodies = [damaged(random, b) if random.random() < 0.1 else b for b in bodies_of(random, schema, 40)]
    kept = [name for name in parsed.root.names if random.random() < 0.5] or [parsed.root.names[0]]
    part = only_fields(parsed, {name: {} for name in kept})
    read, whole = read_bodies(pa.array(bodies, pa.binary()), part), read_bodies(pa.array(bodies, pa.binary()), parsed)
    values = dict(zip(read.positions.tolist(), read.values.to_pylist(), strict=True))
    for position, value in zip(whole.positions.tolist(), whole.values.to_pylist(), strict=True):
        assert plain({name: value[name] for name in part.root.names if name in kept}) == plain(values[position])
    for position, reason in read.bad:
        with pytest.raises(DamagedRecord):
            read_value(bodies[position], part)
        assert position in dict(whole.bad), reason
