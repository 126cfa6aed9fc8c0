"""Lines whose loss would hurt most, broken one by one in a copy: tests of the default run have to turn red.

`python -m tests.simulation.mutations [NAME...]` runs for each the tests that are quickest to see it. Exit code 1
where a broken line is seen by none: a test is missing.
"""

import sys
from dataclasses import dataclass

from tests.simulation.edits import Edit, edited, run_in

_PYTEST = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not stores")
_TESTS_FAILED = 1
_BATCH, _STORE = "tests/unit/streaming/batch", "tests/unit/state/store"


@dataclass(frozen=True)
class Mutation:
    """A line that is broken, and the tests that must fail then; `chosen` selects among them as pytest's -k does."""

    edit: Edit
    tests: tuple[str, ...]
    chosen: str = ""


def _broken(name: str, module: str, text: str, instead: str, was: str, *tests: str, chosen: str = "") -> Mutation:
    return Mutation(Edit(name, module, text, instead, was), tests, chosen)


MUTATIONS = (
    _broken(
        "replay check",
        "streaming/batch/recover.py",
        "    if same:\n        return _recognise",
        "    if same and batch.batch_id < 0:\n        return _recognise",
        "a batch is written again after a restart",
        f"{_BATCH}/test_recover.py",
    ),
    _broken(
        "digest",
        "streaming/batch/recover.py",
        "    if stored is not None and stored == batch.digest:",
        "    if stored is not None:",
        "another batch of that number is taken for this one, and its rows are lost",
        f"{_BATCH}/test_recover.py",
    ),
    _broken(
        "digest of a replayed batch",
        "streaming/batch/recover.py",
        "    if replayed.properties.get(DIGEST) != batch.digest:",
        "    if replayed.properties.get(DIGEST) is None:",
        "of two runs with copied checkpoints one loses its rows",
        f"{_BATCH}/test_sink_without_spark.py", chosen="replayed_batch",
    ),
    _broken(
        "rewound checkpoint",
        "streaming/batch/recover.py",
        "    if newest is not None and newest > batch.batch_id:",
        "    if newest is not None and newest < 0:",
        "rows are written again from a checkpoint of before",
        f"{_BATCH}/test_recover.py",
    ),
    _broken(
        "missing batch",
        "streaming/batch/recover.py",
        "    if needed >= 0 and not (newest is not None and newest >= needed and history.complete):",
        "    if needed < -1:",
        "after a rollback the stream goes on behind a gap",
        f"{_BATCH}/test_recover.py",
    ),
    _broken(
        "fsync of a file",
        "state/store/storage/local_io.py",
        "                rest = rest[file.write(rest) or 0 :]\n            os.fsync(descriptor)",
        "                rest = rest[file.write(rest) or 0 :]",
        "a snapshot is empty after a power cut",
        f"{_STORE}/storage/test_durable.py",
    ),
    _broken(
        "fsync of a folder",
        "state/store/storage/local_io.py",
        "                    return False\n                _sync_folder(folder)",
        "                    return False",
        "a snapshot is gone after a power cut",
        f"{_STORE}/storage/test_durable.py",
    ),
    _broken(
        "fsync of a data file",
        "state/store/storage/local_io.py",
        "                os.fsync(self.fileno())\n                _sync_folder",
        "                _sync_folder",
        "a snapshot names a data file that is empty after a power cut",
        f"{_STORE}/storage/test_durable.py",
    ),
    _broken(
        "hard link",
        "state/store/storage/local_io.py",
        "        os.link(temporary, path)",
        "        os.replace(temporary, path)",
        "of two writers the second replaces the first one's snapshot",
        f"{_STORE}/storage/test_file_io.py",
    ),
    _broken(
        "conditional put",
        "state/store/storage/objects/object_io.py",
        'mode="create", use_multipart=False',
        'mode="overwrite", use_multipart=False',
        "as with the hard link, on S3",
        f"{_STORE}/storage/test_object_io.py",
    ),
    _broken(
        "deleted files are live",
        "state/commit/conflict.py",
        "        or check_deletes(live, delta_entries)\n",
        "",
        "two compactions of a bucket leave rows twice",
        "tests/unit/state/commit/test_commit_conflict.py",
    ),
    _broken(
        "added files are new",
        "state/commit/conflict.py",
        "        or check_adds(live, delta_entries)\n",
        "",
        "what was committed is committed again",
        "tests/unit/state/commit/test_commit_conflict.py",
    ),
    _broken(
        "keys of a level",
        "state/commit/conflict.py",
        "            if key_order(left.file.max_key) >= key_order(right.file.min_key):",
        "            if key_order(left.file.max_key) > key_order(right.file.max_key):",
        "a key is in a level twice, and readers see either row",
        "tests/unit/state/commit/test_commit_conflict.py",
    ),
    _broken(
        "number of buckets",
        "state/commit/conflict.py",
        "        if known > 0 and known != entry.total_buckets:",
        "        if known > 0 and known < 0:",
        "a key is in two buckets",
        "tests/unit/state/commit/test_commit_conflict.py",
    ),
    _broken(
        "rows that were deleted meanwhile",
        "state/commit/conflict.py",
        "        if not unchanged:",
        "        if not unchanged and known is not None and known[0] == current[0]:",
        "a compaction brings deleted rows back",
        "tests/unit/state/commit/test_commit_conflict.py", f"{_STORE}/table/test_row_changes.py",
        f"{_STORE}/table/test_append_changes.py",
    ),
    _broken(
        "index files",
        "state/commit/conflict.py",
        "        if entry.kind is FileKind.DELETE and place not in live:",
        "        if entry.kind is FileKind.DELETE and place is None:",
        "keys of a bucket are forgotten, and come to lie in two",
        "tests/unit/state/commit/test_commit_conflict.py",
    ),
    _broken(
        "lease",
        "state/plans/lease.py",
        "    if view.epoch == seen.epoch and now_ms - seen.since_ms > period_ms:",
        "    if view.epoch == seen.epoch:",
        "compactors take each other's work",
        "tests/unit/state/plans/test_lease.py",
    ),
    _broken(
        "visibility",
        "state/store/write/visibility.py",
        "    if hides_level0(schema):\n        return Waits.ROWS",
        "    if hides_level0(schema):\n        return Waits.NOTHING",
        "a batch is done, and its rows cannot be read",
        f"{_BATCH}/test_hidden_rows.py",
    ),
    _broken(
        "orphan floor",
        "state/store/maintenance/orphans.py",
        "    if older_than_ms < REMOVABLE_MS and not may_be_young:",
        "    if older_than_ms < 0 and not may_be_young:",
        "files of a writer that is about to commit are removed",
        f"{_STORE}/maintenance/test_orphans.py",
    ),
    _broken(
        "names that are in use",
        "state/store/maintenance/orphans.py",
        "return is_temporary(file) or own_name(file) not in used.names",
        "return True",
        "orphan removal takes files that snapshots name",
        f"{_STORE}/maintenance/test_orphans.py",
    ),
    _broken(
        "tags in expiry",
        "state/store/maintenance/expiry.py",
        "steps = self._plan(begin, end, tags, notes.pins.values())",
        "steps = self._plan(begin, end, [], notes.pins.values())",
        "expiry removes files that a tag needs",
        f"{_STORE}/maintenance/test_expiry.py",
    ),
    _broken(
        "pins",
        "state/store/catalog/pins.py",
        "        _wait_for_others(notebook, name, pin, world, heeds_pins=heeds_pins)\n        yield",
        "        yield",
        "a tag or branch names files that expire while it is made",
        f"{_STORE}/maintenance/test_care_beside_history.py",
    ),
    _broken(
        "files after publication",
        "state/store/commit/publication.py",
        "            gone = self.proof.first_gone(snapshots.path(snapshot.id))",
        "            gone = None",
        "a snapshot names files that were removed while its writer was stopped",
        f"{_STORE}/commit/test_stopped_commits.py", f"{_STORE}/commit/test_publish.py",
    ),
    _broken(
        "place in the history",
        "state/store/commit/publication.py",
        "        if base is not None and base == before:\n            return PublishOutcome.WON",
        "        if base is None or base is not None:\n            return PublishOutcome.WON",
        "a commit on a snapshot that was taken back undoes that",
        f"{_STORE}/commit/test_publish.py", f"{_STORE}/commit/test_stopped_commits.py",
    ),
    _broken(
        "schema of a commit",
        "state/store/commit/commit_proof.py",
        "    if stored is None or stored.fields != schema.fields:",
        "    if stored is not None and stored.id < 0:",
        "a commit cannot be read after a fast-forward",
        f"{_STORE}/maintenance/test_deleted_branches.py",
    ),
    _broken(
        "fast-forward beside a rollback",
        "state/commit/pins.py",
        "    return _excludes(pin, other) or _excludes(other, pin)",
        "    return False",
        "a rollback that was stopped removes a snapshot of the branch",
        f"{_STORE}/maintenance/test_fast_forward_excludes.py",
    ),
    _broken(
        "rollback by two",
        "state/store/catalog/rollback.py",
        "        return (now is None or now == self.found[self._next]) and self.snapshots.exists(self.wanted.id)",
        "        return now is None or now is not None",
        "a rollback that was stopped takes commits of those who went on",
        f"{_STORE}/maintenance/test_care_beside_history.py",
        chosen="takes_nothing",
    ),
    _broken(
        "checksums",
        "state/store/datafile/parquet_rows.py",
        "            page_checksum_verification=True,",
        "            page_checksum_verification=False,",
        "flipped bits are read as rows",
        f"{_STORE}/datafile/test_flips.py",
    ),
)  # fmt: skip


def is_seen(mutation: Mutation) -> tuple[bool, str]:
    """Whether a test fails, and the end of what pytest prints."""
    chosen = ("-k", mutation.chosen) if mutation.chosen else ()
    with edited(mutation.edit) as folder:
        code, told = run_in(folder, [sys.executable, *_PYTEST, *chosen, *mutation.tests])
    return code == _TESTS_FAILED, told.strip()[-400:]


def main() -> int:
    wanted, survived = sys.argv[1:], 0
    for mutation in MUTATIONS:
        name = mutation.edit.name
        if wanted and name not in wanted:
            continue
        seen, told = is_seen(mutation)
        survived += not seen
        print(f"{name}: {'seen' if seen else f'not seen by {mutation.tests}: {told}'}", flush=True)
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
