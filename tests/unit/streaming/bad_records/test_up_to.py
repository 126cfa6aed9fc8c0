"""Which stored bad records belong to batches that are written."""

import pyarrow as pa

from bucketline.streaming.bad_records.replays import up_to


def test_records_are_chosen_by_the_newest_batch_of_their_writer_in_their_table() -> None:
    rows = pa.table(
        {
            "query_id": ["q", "q", "q", "r", "r", "q", None],
            "table_name": ["a", "a", "b", "a", None, None, "a"],
            "batch_id": pa.array([1, 2, 2, 2, 9, 9, 0], pa.int64()),
            "number": range(7),
        }
    )
    asked: list[tuple[str, str | None]] = []

    def newest(writer: str, table: str | None) -> int | None:
        asked.append((writer, table))
        return {("q", "a"): 1, ("q", "b"): 2, ("r", None): 9}.get((writer, table))

    assert up_to(rows, newest)["number"].to_pylist() == [0, 2, 4]
    assert len(asked) == len(set(asked)) == 6
    assert up_to(rows.slice(0, 0), newest).num_rows == 0
