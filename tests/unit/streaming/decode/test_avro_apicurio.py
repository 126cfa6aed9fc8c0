"""Apicurio Registry answers as our client expects it: ids, references, and what is not there."""

import json
import struct
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from bucketline.conf.job import RecordFormat
from bucketline.conf.sources.registry_options import RegistryOptions
from bucketline.state.types.logical import DataField, parse_type
from bucketline.streaming.decode.avro.avro_schema import AvroSchema
from bucketline.streaming.decode.avro.registry import RegistrySchemas
from bucketline.streaming.decode.decode_step import DecodeStep
from tests.support.servers.apicurio import apicurio

pytestmark = pytest.mark.stores

FIELDS = [{"name": "id", "type": "long"}, {"name": "city", "type": ["null", "string"], "default": None}]
ORDER = json.dumps({"type": "record", "name": "Order", "fields": FIELDS})


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with apicurio(tmp_path_factory.mktemp("apicurio")) as started:
        yield started


def schemas(url: str) -> RegistrySchemas:
    return RegistrySchemas(RegistryOptions(url, retries=0, wait_ms=0), str(uuid.uuid4()))


def test_apicurio_has_schemas_with_references_by_id(url: str) -> None:
    client = SchemaRegistryClient({"url": url})
    city = {"type": "record", "name": "City", "fields": [{"name": "name", "type": "string"}]}
    client.register_schema("City", Schema(json.dumps(city), "AVRO"))
    shipment = {"type": "record", "name": "Shipment", "fields": [{"name": "to", "type": "City"}]}
    named = [SchemaReference("City", "City", 1)]
    known = client.register_schema("shipments-value", Schema(json.dumps(shipment), "AVRO", references=named))
    schema = schemas(url).schema(known)
    assert isinstance(schema, AvroSchema), schema
    assert schema.root.children[0].names == ("name",)


def test_messages_of_confluents_serializer_with_apicurio_become_rows(url: str) -> None:
    write = AvroSerializer(SchemaRegistryClient({"url": url}), ORDER)
    context = SerializationContext("orders", MessageField.VALUE)
    rows = [{"id": at, "city": None if at % 3 == 0 else f"city {at}"} for at in range(100)]
    unknown = struct.pack(">bI", 0, 99_999) + b"\x02\x00"
    values = [*(write(row, context) for row in rows), unknown]
    count = len(values)
    records = pa.table(
        {
            "key": pa.nulls(count, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": pa.array(["orders"] * count),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
        }
    )
    fields = tuple(
        DataField(i, n, parse_type(t)) for i, (n, t) in enumerate({"id": "BIGINT", "city": "STRING"}.items())
    )
    decoded = DecodeStep(RecordFormat.AVRO, fields, reject_limit=9, registry=schemas(url))(records)
    assert decoded.rows.to_pylist() == rows
    assert decoded.rejects is not None
    rejected = pa.ipc.open_stream(decoded.rejects.blob).read_all()
    assert rejected["reason"].to_pylist() == ["the schema registry has no schema with id 99999"]
