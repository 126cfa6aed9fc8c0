"""Which table of the source records are of: named to the driver, or left out where another one is to be read."""

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.job import BadRecords, RecordFormat
from bucketline.conf.sources.message_options import MessageOptions, Shards, message_options
from bucketline.state.store.catalog.new_schema import plan_schema
from bucketline.state.types.logical import DataField, parse_type
from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.decode.decoder import DecodedRows
from bucketline.streaming.decode.other_messages import Skipped
from bucketline.streaming.decode.schema_needs import WatchFor
from bucketline.streaming.decode.step_for_table import decode_step

FIELDS = (DataField(0, "id", parse_type("BIGINT NOT NULL")), DataField(1, "name", parse_type("STRING")))


def debezium(db: str | None, schema: str | None, table: str | None, **after: object) -> dict[str, Any]:
    names = {"db": db} | ({} if schema is None else {"schema": schema}) | {"table": table}
    source = {"version": "3.5.0.Final", "connector": "x", "name": "s", "ts_ms": 1, **names, "lsn": 5, "xmin": None}
    return {"before": None, "after": {"id": 1, "name": "a", **after}, "source": source, "op": "c", "ts_ms": 1}


def maxwell(table: str, **data: object) -> dict[str, Any]:
    return {"database": "shop", "table": table, "type": "insert", "data": {"id": 1, "name": "a", **data}}


def canal(table: str, **data: object) -> dict[str, Any]:
    return {"database": "shop", "table": table, "type": "INSERT", "isDdl": False, "data": [{"id": "1", **data}]}


def decoded(
    records: Sequence[object],
    decode: RecordFormat = RecordFormat.DEBEZIUM_JSON,
    watch: WatchFor = WatchFor.NOTHING,
    **messages: Any,
) -> DecodedRows:
    step = DecodeStep(
        decode, FIELDS, ("id",), reject_limit=100, watch=watch, messages=MessageOptions(**messages), loose=("name",)
    )
    return step(pa.table({"value": pa.array([None if r is None else json.dumps(r).encode() for r in records])}))


@pytest.mark.parametrize("watch", WatchFor)
def test_the_tables_of_events_are_named_with_database_and_schema(watch: WatchFor) -> None:
    same = [debezium("shop", "public", "orders")] * 3
    assert decoded([None, *same, {"ts_ms": 1}], watch=watch).seen.tables == {"shop.public.orders"}
    others = [debezium("shop", None, "orders"), debezium(None, None, None), debezium("shop", "", "carts")]
    found = decoded([*same, *others], watch=watch)
    assert found.seen.tables == {"shop.public.orders", "shop.orders", "shop.carts"}
    assert found.rejects is None and found.rows.num_rows == 6
    assert decoded([{**same[0], "source": None}], watch=watch).seen.tables == frozenset()


def test_unknown_fields_of_events_are_found_though_their_source_is_cut_out() -> None:
    found = decoded([debezium("shop", "public", "orders", size=4)] * 20, watch=WatchFor.ALL)
    assert found.need.type == pa.struct([("size", pa.int64())])
    assert found.seen.tables == {"shop.public.orders"}


@pytest.mark.parametrize(
    ("decode", "record"),
    [(RecordFormat.MAXWELL_JSON, maxwell), (RecordFormat.CANAL_JSON, canal)],
    ids=["maxwell", "canal"],
)
def test_the_tables_of_messages_of_the_binary_log_are_named_and_chosen(decode: RecordFormat, record: Any) -> None:
    records = [record("orders"), record("carts", id="no number"), record("orders")]
    assert decoded(records[::2], decode).seen.tables == {"shop.orders"}
    found = decoded(records, decode, source_table="shop.orders")
    assert (found.rows.num_rows, found.rejects) == (2, None)
    assert found.seen.skipped == {Skipped.OTHER_TABLE: 1} and found.seen.tables == {"shop.orders"}


@pytest.mark.parametrize("wanted", ["public.orders", "shop.public.orders", "regex:public\\.ord.*", "regex:.*orders"])
def test_records_of_other_tables_are_left_out_whatever_they_hold(wanted: str) -> None:
    own = debezium("shop", "public", "orders")
    other = debezium("shop", "public", "carts", id="no number", more={"x": 1})
    enveloped = [{"schema": {"fields": []}, "payload": record} for record in (own, other)]

    found = decoded([own, other, None, *enveloped, {"ts_ms": 1}], watch=WatchFor.ALL, source_table=wanted)

    assert (found.rows.num_rows, found.rejects, bool(found.need)) == (2, None, False)
    assert found.seen.skipped == {Skipped.OTHER_TABLE: 2, Skipped.TOMBSTONE: 1, Skipped.HEARTBEAT: 1}
    assert found.seen.tables == {"shop.public.orders"}


def test_a_plain_text_is_an_exact_name_and_a_pattern_is_of_the_whole_name() -> None:
    assert MessageOptions("a.b").reads_table("a.b") and not MessageOptions("a.b").reads_table("aXb", "a.bc")
    assert not MessageOptions("regex:a").reads_table("a.b") and MessageOptions().reads_table("x")


def test_what_a_job_says_of_its_messages_is_checked() -> None:
    assert message_options({"source-table": "a.b", "shards": "distinct-keys"}) == MessageOptions(
        "a.b", Shards.DISTINCT_KEYS
    )
    for texts, told in (
        ({"source-table": "regex:("}, "the pattern is no valid regular expression"),
        ({"source-table": ""}, "source-table"),
        ({"shards": "same-keys"}, "shards"),
    ):
        with pytest.raises(OptionError, match=told):
            message_options(texts)


@pytest.mark.parametrize(
    ("decode", "messages", "key"),
    [
        (RecordFormat.JSON, MessageOptions(source_table="a.b"), "source-table"),
        (RecordFormat.NONE, MessageOptions(shards=Shards.DISTINCT_KEYS), "shards"),
        (RecordFormat.MAXWELL_JSON, MessageOptions(unavailable_value="x"), "unavailable-value"),
    ],
)
def test_an_option_that_says_nothing_of_a_format_is_refused(
    decode: RecordFormat, messages: MessageOptions, key: str
) -> None:
    schema = plan_schema("id BIGINT NOT NULL", ("id",), (), {"bucket": "1"}, None, time_ms=0)
    with pytest.raises(OptionError, match=f"{key} needs messages"):
        decode_step(decode, schema, BadRecords(None, 0), messages)
