"""Rows that move between partitions by a computed key, in a stream whose batches die: equal to a dictionary."""

import json
import random
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.conf.column_options import ColumnOptions
from bucketline.conf.job import BadRecords, RecordFormat
from bucketline.conf.sources.message_options import MessageOptions, parse_source_type
from bucketline.state.store.table.table import create_table, handle_of, open_table
from bucketline.streaming.bad_records.folder import Folder
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.decode.step_for_table import decode_step
from bucketline.streaming.job.choose_reader import JobSink
from tests.support.models.moving_rows import SELECT, MovingRows
from tests.support.spark.tasks import Cluster
from tests.unit.streaming.bad_records.test_once import Death, DyingPlace


@pytest.mark.parametrize(("key", "seed"), [(("id", "dt"), 1), (("id", "dt"), 2), (("id",), 3), (("id",), 4)])
def test_rows_that_move_are_where_the_source_has_them_whenever_batches_die(
    tmp_path: Path, key: tuple[str, ...], seed: int
) -> None:
    draw = random.Random(seed)
    path, place = str(tmp_path / "shop.db" / "t"), Folder(str(tmp_path / "bad"))
    buckets = {"bucket": "2"} if "dt" in key else {"bucket": "-1"}
    create_table(path, "id BIGINT NOT NULL, v INT, updated TIMESTAMP(3), dt STRING", key, ("dt",), buckets)
    messages = MessageOptions(types=(("updated", parse_source_type("epoch-millis")),))
    source = MovingRows(draw)
    for number in range(8):
        events = [source.change() for _ in range(draw.randrange(1, 9))]
        values = {
            "value": [json.dumps(e).encode() for e in events],
            "key": [json.dumps({"id": (e["after"] or e["before"])["id"]}).encode() for e in events],
        }
        for attempt in range(draw.randrange(1, 4)):
            step = decode_step(
                RecordFormat.DEBEZIUM_JSON,
                handle_of(open_table(path)).table_schema,
                BadRecords(place.path, 0),
                messages,
                columns=ColumnOptions(SELECT),
            )
            dies = attempt == 0 and draw.random() < 0.5
            sink = JobSink(path, {}, decode=step, bad_records=DyingPlace(place) if dies else place)
            run = f"run {number} {attempt}"
            identity = BatchIdentity("query", number, f"[{number}]", f"[{number + 1}]", f"d{number}", run_id=run)
            frame = Cluster(random.Random(seed), 2).frame(pa.table(values), 1, batch_rows=3)
            if dies:
                with pytest.raises(Death):
                    sink.write(frame, identity)
            else:
                sink.write(frame, identity)
        if dies:
            sink = JobSink(path, {}, decode=step, bad_records=place)
            sink.write(
                frame, BatchIdentity("query", number, f"[{number}]", f"[{number + 1}]", f"d{number}", run_id="last")
            )
        found = open_table(path).to_arrow(["id", "v", "dt"]).to_pylist()
        assert len(found) == len(source.rows)
        assert {r["id"]: (r["v"], r["dt"]) for r in found} == source.table()
