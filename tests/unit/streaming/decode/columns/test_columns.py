"""Columns that are computed, rows that are chosen, expectations: changes against a reference that goes row by row."""

import ast
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketline.conf.column_options import ColumnOptions, Expectation, Otherwise
from bucketline.conf.errors import OptionError
from bucketline.conf.job import BadRecords, RecordFormat
from bucketline.conf.resolve import read_settings, resolve_job
from bucketline.conf.sources.message_options import NO_MESSAGE_OPTIONS, MessageOptions, parse_source_type
from bucketline.state.errors import UnsupportedTableError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.store.catalog.new_schema import plan_schema
from bucketline.streaming.batch.conform import at_time
from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.decode.decoder import DecodedRows
from bucketline.streaming.decode.step_for_table import decode_step, step_for
from tests.support.pages.readme import ROOT

COLUMNS = (
    "id BIGINT NOT NULL, created TIMESTAMP(3), email STRING, amount DECIMAL(10, 2), city STRING, dt STRING NOT NULL"
)
SELECT = (
    "* EXCEPT (password), lower(email) AS email, date_format(created, 'yyyy-MM-dd') AS dt, address.city AS city, "
    "try_cast(raw AS DECIMAL(10, 2)) AS amount"
)
DEBEZIUM = RecordFormat.DEBEZIUM_JSON
MESSAGES = {
    DEBEZIUM: MessageOptions(types=(("created", parse_source_type("epoch-millis")),)),
    RecordFormat.JSON: NO_MESSAGE_OPTIONS,
}


def schema_of(
    columns: str = COLUMNS, key: tuple[str, ...] = ("id", "dt"), parts: tuple[str, ...] = ("dt",), **options: str
) -> TableSchema:
    return plan_schema(columns, key, parts, {"bucket": "2", **options}, None, storage_options={}, time_ms=0)


def step_of(
    options: ColumnOptions,
    decode: RecordFormat = DEBEZIUM,
    schema: TableSchema | None = None,
    path: str | None = "/bad",
) -> DecodeStep:
    step = decode_step(
        decode, schema or schema_of(), BadRecords(path, 100 if path else 0), MESSAGES[decode], columns=options
    )
    assert step is not None
    return step


def run(step: DecodeStep, *events: Any, keys: list[Any] | None = None) -> DecodedRows:
    values = [None if e is None else json.dumps(e).encode() for e in events]
    given = [None if k is None else json.dumps(k).encode() for k in keys or [None] * len(events)]
    return step(pa.table({"value": pa.array(values, pa.binary()), "key": pa.array(given, pa.binary())}))


def event(op: str, before: Any = None, after: Any = None) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "source": {"table": "t", "db": "d"}, "ts_ms": 1}


def row(id: int, day: int = 1, **more: Any) -> dict[str, Any]:
    return {"id": id, "created": 86_400_000 * day, "email": "A@B", "password": "x", "address": {"city": "Rome"}, **more}


def shown(found: DecodedRows, *names: str) -> list[tuple[Any, ...]]:
    rows = found.rows.to_pylist()
    return [(r.get("_row_kind", 0), *(str(r[n]) for n in names)) for r in rows]


def reasons(found: DecodedRows) -> list[str]:
    return [] if found.rejects is None else pa.ipc.open_stream(found.rejects.blob).read_all()["reason"].to_pylist()


def test_columns_are_computed_and_only_what_is_used_is_decoded() -> None:
    step = step_of(ColumnOptions(SELECT), RecordFormat.JSON)
    assert [f.name for f in step.decoding.fields] == ["id", "created", "email", "raw", "address"]
    found = run(
        step,
        {**row(1), "created": "1970-01-02 03:04:05", "raw": "1.239", "amount": "no number", "city": {"a": "row"}},
        {**row(2), "created": "1970-01-03 00:00:00", "raw": "no"},
    )
    assert shown(found, "id", "email", "amount", "city", "dt") == [
        (0, "1", "a@b", "1.24", "Rome", "1970-01-02"),
        (0, "2", "a@b", "None", "Rome", "1970-01-03"),
    ]
    assert reasons(found) == []


def test_an_error_in_a_row_is_a_bad_record_with_its_reason() -> None:
    step = step_of(
        ColumnOptions("*, cast(raw AS DECIMAL(10, 2)) AS amount, date_format(created, 'yyyy') AS dt"), RecordFormat.JSON
    )
    found = run(
        step,
        {**row(1), "created": "1970-01-02 00:00:00", "raw": "1"},
        {**row(2), "created": "1970-01-02 00:00:00", "raw": "x"},
        row(3, created=None),
    )
    assert shown(found, "id", "amount") == [(0, "1", "1.00")]
    assert ["'x' cannot be cast to DECIMAL(10, 2)" in reasons(found)[0], reasons(found)[1]] == [
        True,
        "field dt: null, but the column is NOT NULL",
    ]


def test_keys_and_partitions_are_computed_from_the_old_row_and_the_new_one() -> None:
    step = step_of(ColumnOptions(SELECT))
    found = run(
        step,
        event("c", None, row(1)),
        event("u", row(1), row(1, email="C")),
        event("u", row(1), row(1, day=2)),
        event("u", row(1), row(1, created=86_400_000 + 5)),
        event("d", row(1, day=2)),
        event("d", {"id": 1}),
    )
    assert shown(found, "id", "dt") == [
        (0, "1", "1970-01-02"),
        (2, "1", "1970-01-02"),
        (3, "1", "1970-01-02"),
        (2, "1", "1970-01-03"),
        (2, "1", "1970-01-02"),
        (3, "1", "1970-01-03"),
    ]
    (why,) = reasons(found)
    assert "a delete without the column created" in why


def test_an_update_that_only_changes_what_its_key_is_computed_from_gives_its_old_row_where_the_table_logs_it() -> None:
    step = step_of(ColumnOptions(SELECT), schema=schema_of(**{"changelog-producer": "input"}))
    found = run(step, event("u", row(1), row(1, created=86_400_000 + 5)), event("u", row(1), row(1, day=2)))
    assert shown(found, "id", "created", "dt") == [
        (1, "1", "1970-01-02 00:00:00", "1970-01-02"),
        (2, "1", "1970-01-02 00:00:00.005000", "1970-01-02"),
        (3, "1", "1970-01-02 00:00:00", "1970-01-02"),
        (2, "1", "1970-01-03 00:00:00", "1970-01-03"),
    ]


def test_where_judges_new_images() -> None:
    step = step_of(ColumnOptions(SELECT, "address.city = 'Rome'"))
    away = {"address": {"city": "Oslo"}}
    found = run(
        step,
        event("c", None, row(1, **away)),
        event("c", None, row(2)),
        event("r", None, row(3, **away)),
        event("u", row(4), row(4, **away)),
        event("u", row(5), row(5, 2, **away)),
        event("d", row(6, **away)),
    )
    assert shown(found, "id", "dt") == [
        (0, "2", "1970-01-02"),
        (3, "3", "1970-01-02"),
        (3, "4", "1970-01-02"),
        (3, "5", "1970-01-02"),
        (3, "5", "1970-01-03"),
        (3, "6", "1970-01-02"),
    ]


def test_where_of_engines_that_retract_judges_each_image_by_itself() -> None:
    schema = schema_of(
        "id BIGINT NOT NULL, v BIGINT",
        ("id",),
        (),
        **{"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    )
    step = step_of(ColumnOptions(None, "v > 0"), schema=schema)
    found = run(
        step,
        event("u", {"id": 1, "v": 5}, {"id": 1, "v": 7}),
        event("u", {"id": 2, "v": 5}, {"id": 2, "v": -7}),
        event("u", {"id": 3, "v": -5}, {"id": 3, "v": 7}),
        event("d", {"id": 4, "v": -5}),
        event("u", None, {"id": 5, "v": 7}),
    )
    assert shown(found, "id", "v") == [(1, "1", "5"), (2, "1", "7"), (3, "2", "5"), (2, "3", "7")]
    assert "an update without the row before it" in reasons(found)[0]


def test_expectations_warn_drop_and_reject_and_null_passes() -> None:
    expect = (
        Expectation("known", "amount IS NOT NULL", Otherwise.WARN),
        Expectation("positive", "amount >= 0", Otherwise.DROP),
        Expectation("small", "amount < 100", Otherwise.REJECT),
    )
    step = step_of(ColumnOptions(SELECT, None, expect))
    found = run(
        step,
        event("c", None, row(1, raw="1")),
        event("c", None, row(2)),
        event("u", row(3), row(3, 2, raw="-1")),
        event("u", row(4), row(4, raw="1000")),
        event("d", row(5, raw="-1")),
    )
    assert shown(found, "id") == [(0, "1"), (0, "2"), (3, "5")]
    assert dict(found.seen.unexpected) == {"known": 1, "positive": 1, "small": 1}
    assert reasons(found) == ["expectation small: not amount < 100"]
    assert found.rejects is not None and (found.rejects.row_count, found.rejects.unexpected_count) == (0, 1)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (ColumnOptions("*, foo(id) AS dt"), "function foo is not supported"),
        (ColumnOptions("*, current_timestamp() AS created, 'x' AS dt"), "is not supported here"),
        (ColumnOptions("*, date_format(now(), 'dd') AS dt"), "now is the time of the batch"),
        (ColumnOptions("*, date_format(_kafka_timestamp, 'dd') AS dt"), "_kafka_timestamp belongs to the message"),
        (ColumnOptions("*, CAST(_ts_ms AS STRING) AS dt"), "_ts_ms belongs to the message"),
        (ColumnOptions("*, 'x' AS dt, _kafka_headers AS email"), "cannot use _kafka_headers"),
        (ColumnOptions("*, id AS nowhere"), "no column 'nowhere'"),
        (ColumnOptions("id, created"), "gives a value to column 'dt', which is NOT NULL"),
        (ColumnOptions("*, lower(email)"), "needs a name"),
        (ColumnOptions("*, email AS amount"), "use CAST"),
        (ColumnOptions(None, "id"), "not a condition"),
        (ColumnOptions(None, "now() > created"), "now is the time of the batch"),
        (ColumnOptions("* FROM t"), "does not belong here"),
        (ColumnOptions(None, None, (Expectation("e", "nope > 1"),)), "expect.e.check: unknown column 'nope'"),
    ],
)
def test_what_cannot_be_computed_is_refused_at_start(options: ColumnOptions, why: str) -> None:
    with pytest.raises(OptionError, match=None) as refused:
        step_of(options)
    assert why in str(refused.value)


def test_plain_rows_and_tables_that_find_rows_by_their_key_are_partitioned_by_the_time_of_the_message() -> None:
    by_time = ColumnOptions("*, date_format(_kafka_timestamp, 'yyyy-MM-dd') AS dt")
    for decode, key in ((RecordFormat.JSON, ("id", "dt")), (DEBEZIUM, ("id",))):
        step = step_of(by_time, decode, schema_of(key=key, **({"bucket": "-1"} if key == ("id",) else {})))
        value = json.dumps({"id": 1} if decode is RecordFormat.JSON else event("u", None, row(1))).encode()
        moment = pa.array([86_400_000_000], pa.timestamp("us", "UTC"))
        found = step(pa.table({"value": pa.array([value], pa.binary()), "timestamp": moment}))
        assert found.rows["dt"].to_pylist() == ["1970-01-02"]


def test_current_timestamp_is_the_time_of_the_batch_in_each_attempt() -> None:
    step = decode_step(
        RecordFormat.JSON,
        schema_of("id BIGINT NOT NULL, seen TIMESTAMP(3), dt STRING NOT NULL"),
        BadRecords("/bad", 9),
        columns=ColumnOptions(
            "id, current_timestamp() AS seen, dt", None, (Expectation("past", "seen < now()", Otherwise.WARN),)
        ),
        now_us=0,
    )
    assert step is not None and step.computed is not None and step.computed.tells_time
    timed = at_time(step, 1_709_251_199_123)
    assert isinstance(timed, DecodeStep)
    schema = schema_of("id BIGINT NOT NULL, seen TIMESTAMP(3), dt STRING NOT NULL")
    for _ in range(2):
        found = run(step_for(timed, schema), {"id": 1, "dt": "x"})
        assert shown(found, "id", "seen") == [(0, "1", "2024-02-29 23:59:59.123000")]
        assert dict(found.seen.unexpected) == {"past": 1}
    with pytest.raises(UnsupportedTableError, match="the log does not have that time"):
        at_time(step, None)


def test_where_is_refused_where_a_row_could_not_be_deleted() -> None:
    for options in ({"ignore-delete": "true"}, {"merge-engine": "first-row"}):
        with pytest.raises(OptionError, match="ignores or refuses deletes"):
            step_of(ColumnOptions(None, "id > 1"), schema=schema_of(**options))
    with pytest.raises(OptionError, match="the folder for rejected records, is not set"):
        step_of(ColumnOptions(None, None, (Expectation("e", "id > 1", Otherwise.REJECT),)), path=None)


IMAGES = st.builds(
    lambda id, day, v: {"id": id, "created": day * 86_400_000, "v": v},
    st.integers(1, 3),
    st.integers(0, 2),
    st.one_of(st.none(), st.integers(-2, 3)),
)
EVENTS = st.lists(
    st.one_of(
        st.builds(lambda op, a: event(op, None, a), st.sampled_from(["c", "r"]), IMAGES),
        st.builds(lambda b, a: event("u", b, {**a, "id": b["id"]}), IMAGES, IMAGES),
        st.builds(lambda b: event("d", b), IMAGES),
    ),
    max_size=8,
)


@given(
    EVENTS,
    st.sampled_from([None, "v > 0", "created < TIMESTAMP_NTZ'1970-01-02 00:00:00'"]),
    st.sampled_from(list(Otherwise)),
)
@settings(max_examples=60, deadline=None)
def test_drawn_changes_become_what_the_reference_makes_of_them(
    events: list[Any], where: str | None, otherwise: Otherwise
) -> None:
    schema = schema_of("id BIGINT NOT NULL, v BIGINT, dt STRING NOT NULL", ("id", "dt"))
    options = ColumnOptions("*, date_format(created, 'dd') AS dt", where, (Expectation("e", "v <> 2", otherwise),))
    found = run(step_of(options, schema=schema), *events)
    expected, count = reference(events, where, otherwise)
    assert shown(found, "id", "v", "dt") == expected
    assert found.seen.unexpected.get("e", 0) == count


def reference(events: list[Any], where: str | None, otherwise: Otherwise) -> tuple[list[tuple[Any, ...]], int]:
    """Row by row: what becomes of each event, and how many new rows do not meet an expectation."""

    def passes(image: Any) -> bool:
        if where is None:
            return True
        return image["v"] is not None and image["v"] > 0 if where.startswith("v") else image["created"] < 86_400_000

    def stored(kind: int, image: Any) -> tuple[Any, ...]:
        return kind, str(image["id"]), str(image["v"]), f"{image['created'] // 86_400_000 + 1:02}"

    out, count = [], 0
    for e in events:
        op, before, after = e["op"], e["before"], e["after"]
        if op == "d":
            out.append(stored(3, before))
            continue
        rows = []
        if op == "u" and before["created"] != after["created"]:
            rows.append(stored(3, before))
        if passes(after):
            rows.append(stored(2 if op == "u" else 0, after))
            if after["v"] == 2:
                count += 1
                if otherwise in (Otherwise.DROP, Otherwise.REJECT):
                    continue
        elif op != "c":
            rows.append(stored(3, after))
        out += rows
    return out, count


def test_the_example_of_the_readme_partitions_by_a_day_in_one_line_of_yaml() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    yaml = next(block for block in text.split("```yaml\n")[1:] if "select:" in block).split("```")[0]
    events = text.split("for op, before, after in [\n")[1].split("]:\n")[0]
    config = resolve_job(read_settings(yaml, name="orders.yaml"))
    assert config.create is not None
    schema = plan_schema(
        config.create.schema,
        config.create.primary_key,
        config.create.partition_by,
        config.create.options,
        None,
        storage_options={},
        time_ms=0,
    )
    step = decode_step(config.source.decode, schema, config.bad_records, columns=config.columns)
    assert step is not None
    found = run(step, *(event(*parts) for parts in ast.literal_eval(f"[{events}]")), keys=[1, 2, 1, 2, 3])
    assert reasons(found) == []
    assert shown(found, "id", "dt") == [
        (0, "1", "2026-01-30"),
        (0, "2", "2026-01-31"),
        (2, "1", "2026-01-30"),
        (3, "2", "2026-01-31"),
        (0, "3", "2026-01-31"),
    ]
