"""`compact`, `expire`, `orphans`, `offsets` from the shell's side."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.catalog.tags import tag_snapshot
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.streaming.batch.recover import END_OFFSETS
from bucketline.streaming.cli.commands import program


def bucketline(*arguments: str, code: int = 0) -> Result:
    found = CliRunner().invoke(program, arguments)
    assert found.exit_code == code, (found.output, found.stderr)
    return found


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Three appends of 20 keys to two partitions of one bucket, nothing compacted."""
    options = {"bucket": "1", "write-only": "true"}
    made = create_table(
        str(tmp_path / "w.db" / "t"), "id INT, dt STRING", ["dt", "id"], partition_by=["dt"], options=options
    )
    for _ in range(3):
        made.write(pa.table({"id": pa.array(range(20), pa.int32()), "dt": ["d1", "d2"] * 10}))
    return made


def test_compact_commits_once_and_then_finds_nothing_to_do(table: Table) -> None:
    assert bucketline("compact", table.path).stdout == "snapshot 4\n"
    assert set(table.files()["level"].to_pylist()) == {5}
    assert bucketline("compact", table.path).stdout == "nothing to compact\n"
    assert table.to_arrow().num_rows == 20


def test_delete_commits_what_it_deletes(table: Table) -> None:
    assert bucketline("delete", table.path, "--where", "id < 5 AND dt = 'd1'").stdout == "snapshot 4\n"
    assert table.to_arrow().num_rows == 17
    assert bucketline("delete", table.path, "--where", "id < 5 AND dt = 'd1'").stdout == "nothing to delete\n"
    assert "error [USAGE]" in bucketline("delete", table.path, code=2).stderr
    assert "unknown column 'x'" in bucketline("delete", table.path, "--where", "x = 1", code=3).stderr


def test_tags_and_branches_are_made_listed_and_deleted(table: Table) -> None:
    assert bucketline("tag", "create", table.path, "first", "--snapshot", "1").stdout == "tag first created\n"
    bucketline("tag", "create", table.path, "short", "--retain-time", "7 d")
    listed = [json.loads(x) for x in bucketline("tag", "list", table.path, "--format", "json").stdout.splitlines()]
    assert [(t["tag_name"], t["snapshot_id"]) for t in listed] == [("first", 1), ("short", 3)]
    assert listed[0]["time_retained"] is None and listed[1]["time_retained"] == str(7 * 86_400_000)
    assert bucketline("branch", "create", table.path, "test", "--tag", "first").stdout == "branch test created\n"
    bucketline("branch", "create", table.path, "empty")
    listed = [json.loads(x) for x in bucketline("branch", "list", table.path, "--format", "json").stdout.splitlines()]
    assert sorted(b["branch_name"] for b in listed) == ["empty", "test"]
    bucketline("delete", table.path, "-o", "branch=test", "--where", "id < 10")
    assert bucketline("branch", "fast-forward", table.path, "test").stdout == "snapshot 2\n"
    assert table.to_arrow().num_rows == 10
    assert bucketline("rollback", table.path, "first").stdout == "snapshot 1\n"
    assert table.to_arrow().num_rows == 20
    assert bucketline("branch", "delete", table.path, "test").stdout == "branch test deleted\n"
    gone = bucketline("branch", "delete", table.path, "test", code=1).stderr
    assert "error [VERSION_NOT_FOUND]: Branch name 'test' doesn't exist; there are: empty" in gone
    assert bucketline("tag", "delete", table.path, "first").stdout == "tag first deleted\n"
    gone = bucketline("tag", "delete", table.path, "first", code=1).stderr
    assert "error [VERSION_NOT_FOUND]: Tag 'first' doesn't exist; there are none" in gone
    assert "there are snapshots 1 to 1 and no tag" in bucketline("rollback", table.path, "77", code=1).stderr
    assert "tag '²' doesn't exist" in bucketline("rollback", table.path, "²", code=1).stderr
    assert "--retain-time" in bucketline("tag", "create", table.path, "x", "--retain-time", "7", code=2).stderr


def test_compact_takes_a_partition_and_a_strategy(table: Table) -> None:
    bucketline("compact", table.path, "--partition", "dt=d2")
    files = table.files()
    assert {(p, lv) for p, lv in zip(files["partition"].to_pylist(), files["level"].to_pylist(), strict=True)} == {
        ("{d1}", 0),
        ("{d2}", 5),
    }
    assert bucketline("compact", table.path, "--strategy", "minor").stdout == "nothing to compact\n"
    assert "error [USAGE]" in bucketline("compact", table.path, "--strategy", "huge", code=2).stderr
    assert "error [OPTION]" in bucketline("compact", table.path, "--partition", "x=1", code=3).stderr
    assert "error [USAGE]" in bucketline("compact", table.path, "--partition", "d2", code=2).stderr


def test_expire_keeps_what_it_is_told_to_keep(table: Table) -> None:
    assert bucketline("expire", table.path).stdout == "nothing to expire\n"
    assert bucketline("expire", table.path, "--retain-max", "1").stdout.startswith("2 snapshots and ")
    assert table.snapshots()["snapshot_id"].to_pylist() == [3]
    assert table.to_arrow().num_rows == 20
    assert "error [OPTION]" in bucketline("expire", table.path, "--retain-min", "3", "--retain-max", "2", code=3).stderr
    assert "--retain-time" in bucketline("expire", table.path, "--retain-time", "soon", code=2).stderr
    assert "12 has no unit" in bucketline("expire", table.path, "--retain-time", "12", code=2).stderr
    assert "error [USAGE]" in bucketline("expire", table.path, "--retain-max", "0", code=2).stderr


def test_orphans_are_listed_and_only_deleted_when_asked(table: Table) -> None:
    stray = Path(table.path) / "dt=d1" / "bucket-0" / "data-00000000-0000-0000-0000-000000000000-0.parquet"
    stray.write_bytes(b"left behind")
    assert bucketline("orphans", table.path, "--format", "json").stdout == ""
    listed = bucketline("orphans", table.path, "--older-than", "0 s", "--format", "json")
    (found,) = [json.loads(line) for line in listed.stdout.splitlines()]
    assert (found["path"], found["size_bytes"]) == (str(stray), 11)
    assert "--delete removes them" in listed.stderr and stray.exists()
    young = ("orphans", table.path, "--older-than", "23 h", "--delete")
    refused = bucketline(*young, code=3)
    assert "error [FILES_TOO_YOUNG]" in refused.stderr and "--no-writers" in refused.stderr and stray.exists()
    assert "DANGER" in bucketline("orphans", "--help").stdout
    assert (
        "1 file, 11 bytes removed"
        in bucketline("orphans", table.path, "--older-than", "0 s", "--delete", "--no-writers").stderr
    )
    assert not stray.exists() and table.to_arrow().num_rows == 20
    assert "--older-than" in bucketline("orphans", table.path, "--older-than", "ever", code=2).stderr
    refused = bucketline("orphans", table.path, "--older-than", "1", "--delete", "--no-writers", code=2)
    assert "1 has no unit" in refused.stderr and "'1 d'" in refused.stderr


def test_doctor_tells_a_sound_table_from_a_broken_one(table: Table) -> None:
    found = bucketline("doctor", table.path, "--rows")
    assert (found.stdout, found.stderr) == ("", "no problems found\n")
    assert bucketline("doctor", table.path, "--format", "csv").stdout == "severity,rule,subject,message\n"
    (Path(table.path) / "snapshot" / "snapshot-2").write_text("{")
    found = bucketline("doctor", table.path, "--format", "json", code=1)
    told = [json.loads(line) for line in found.stdout.splitlines()]
    assert told[0]["severity"] == "error" and told[0]["subject"].endswith("snapshot-2")
    assert "error" in found.stderr
    assert "snapshot-2" in bucketline("doctor", table.path, code=1).stdout


def _tell_offsets(table: Table, snapshot_id: int, user: str, sources: object) -> None:
    """Writes offsets into a snapshot as a sink would have."""
    path = Path(Snapshots(handle_of(table).io, table.path).path(snapshot_id))
    told = json.loads(path.read_text())
    told["commitUser"] = user
    told["properties"] = {END_OFFSETS: sources if isinstance(sources, str) else json.dumps(sources)}
    path.write_text(json.dumps(told))


def test_offsets_are_those_of_the_newest_snapshot_that_has_them(table: Table) -> None:
    _tell_offsets(table, 1, "query-a", [{"orders": {"0": 5, "1": 7}}])
    _tell_offsets(table, 2, "query-a", [{"orders": {"0": 15, "1": 17}}])
    assert json.loads(bucketline("offsets", table.path).stdout) == {"orders": {"0": 15, "1": 17}}


def test_offsets_of_several_sources_of_a_query_are_printed_together(table: Table) -> None:
    _tell_offsets(table, 3, "q", [{"a": {"0": 1}}, {"logOffset": 4}, None, {"b": {"0": 2}}])
    assert json.loads(bucketline("offsets", table.path).stdout) == {"a": {"0": 1}, "b": {"0": 2}}


def test_offsets_tell_of_other_writers_and_print_theirs_on_demand(table: Table) -> None:
    _tell_offsets(table, 1, "query-a", [{"orders": {"0": 5}}])
    tag_snapshot(handle_of(table).io, table.path, "marker", 1)
    _tell_offsets(table, 2, "query-b", [{"returns": {"0": 3}}])
    found = bucketline("offsets", table.path)
    assert json.loads(found.stdout) == {"returns": {"0": 3}}
    assert "query-a also wrote orders" in found.stderr
    assert json.loads(bucketline("offsets", table.path, "--user", "query-a").stdout) == {"orders": {"0": 5}}
    unknown = bucketline("offsets", table.path, "--user", "nobody", code=3).stderr
    assert (
        "error [USER_NOT_FOUND]" in unknown
        and "of commit user 'nobody'; users with offsets: query-b, query-a" in unknown
    )


@pytest.mark.parametrize("sources", [[], [None], [{"logOffset": 3}], "{", '"x"', [{"orders": {"x": 1}}], [{"a": 1}]])
def test_offsets_that_are_not_kafkas_are_none(table: Table, sources: object) -> None:
    _tell_offsets(table, 3, "q", sources)
    assert "holds Kafka offsets" in bucketline("offsets", table.path, code=1).stderr


def test_rescale_changes_the_bucket_count_of_what_is_chosen(table: Table) -> None:
    before = sorted(map(str, table.to_arrow().to_pylist()))
    assert bucketline("rescale", table.path, "--bucket-num", "2", "--partition", "dt=d2").stdout == "snapshot 4\n"
    assert bucketline("rescale", table.path, "--bucket-num", "2").stdout == "snapshot 5\n"
    assert bucketline("rescale", table.path, "--bucket-num", "2").stdout == "nothing to rescale\n"
    assert "error [USAGE]" in bucketline("rescale", table.path, "--bucket-num", "0", code=2).stderr
    assert sorted(map(str, open_table(table.path).to_arrow().to_pylist())) == before
    assert open_table(table.path).options["bucket"] == "2"


def test_tags_and_branches_get_other_names_and_tags_move_and_expire(table: Table) -> None:
    path = table.path
    bucketline("tag", "create", path, "a", "--snapshot", "1")
    assert bucketline("tag", "rename", path, "a", "b").stdout == "tag a is now called b\n"
    assert bucketline("tag", "replace", path, "b", "--retain-time", "1 h").stdout == "tag b replaced\n"
    assert table.tags()["snapshot_id"].to_pylist() == [max(table.snapshots()["snapshot_id"].to_pylist())]
    assert bucketline("tag", "expire", path, "--older-than", "30 d").stdout == "no tag has expired\n"
    bucketline("branch", "create", path, "x", "--tag", "b")
    assert bucketline("branch", "rename", path, "x", "y").stdout == "branch x is now called y\n"
    assert table.branches() == ["y"]


def test_what_is_not_there_is_exit_1_and_the_message_names_what_there_is(table: Table) -> None:
    path = table.path
    bucketline("tag", "create", path, "first", "--snapshot", "1")
    bucketline("branch", "create", path, "dev", "--tag", "first")
    for group, verb, *arguments in [
        ("tag", "delete", "gone"),
        ("tag", "rename", "gone", "other"),
        ("tag", "replace", "gone"),
        ("branch", "create", "other", "--tag", "gone"),
        ("branch", "delete", "gone"),
        ("branch", "rename", "gone", "other"),
        ("branch", "fast-forward", "gone"),
    ]:
        there = (
            "Tag 'gone' doesn't exist; there are: first"
            if group == "tag" or "--tag" in arguments
            else ("Branch name 'gone' doesn't exist; there are: dev")
        )
        said = bucketline(group, verb, path, *arguments, code=1).stderr
        assert f"error [VERSION_NOT_FOUND]: {there}\n" in said, (group, verb)
    said = bucketline("tag", "create", path, "x", "--snapshot", "99", code=1).stderr
    assert "has no snapshot 99; there are snapshots 1 to 3\n" in said
    assert table.tags()["tag_name"].to_pylist() == ["first"] and table.branches() == ["dev"]


def test_offsets_of_an_empty_table_are_an_error_that_says_why(tmp_path: Path) -> None:
    empty = create_table(str(tmp_path / "w.db" / "empty"), "id INT")
    said = bucketline("offsets", empty.path, code=1)
    assert said.stdout == "" and "has no snapshot yet: no batch has been written" in said.stderr
    empty.write(pa.table({"id": pa.array([1], pa.int32())}))
    said = bucketline("offsets", empty.path, code=1)
    assert said.stdout == "" and "either no job of bucketline wrote the table from Kafka" in said.stderr
