"""The result of a batch, as one line for people and as one value for programs."""

import json
import logging
from collections import Counter
from dataclasses import dataclass, replace

from bucketline.conf.wording import age_text, counted
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.postpone_backlog import PostponeBacklog
from bucketline.state.determinism import World
from bucketline.state.format.entries import CommitKind
from bucketline.state.store.engine.engine import Outcome
from bucketline.state.store.plans.make_plan import OpenItems
from bucketline.state.store.write.visibility import Hidden
from bucketline.streaming.batch.back_pressure import Relief
from bucketline.streaming.batch.commit import CommitReport

_LOG = logging.getLogger("bucketline.progress")


@dataclass(frozen=True, slots=True)
class BatchReport:
    """The report of one batch. Times are in seconds, sizes in bytes. The fields are flat and together because log
    handlers and JSON lines show all of them under their names.

    - `level_files`: the number of files that the batch made, by level.
    - `postponed_rows`: rows that wait in the postpone bucket after the batch, in files of `postponed_bytes`. The oldest
      row has waited `postponed_seconds`.
    - `hidden_rows`: committed rows that batch readers do not see, because a compaction failed and has to be done again.
      The oldest row has waited `hidden_seconds`.
    - `back_pressure_seconds`: the time that the batch has waited or compacted because buckets had too many sorted runs.
    - `open_items`: items of compaction plans that were open when the stream last looked. The oldest item was open for
      `open_items_seconds`.
    - `skipped_records`: the number of records that hold no row and are not bad, by kind.
    - `unexpected_rows`: the number of rows that do not meet an expectation, by the name of the expectation.
    - `storage_requests`: the requests of this process to the table's object store. Tasks in other processes are not
      counted.

    These are measured as the batch begins, in the partitions that the last batch wrote:

    - `bucket_runs`: the number of buckets, by their number of sorted runs. `most_runs` is the largest number of sorted
      runs.
    - `crowded_buckets`: buckets with more sorted runs than the stop trigger allows.
    - `level0_bytes`: the size of the files on level 0. The oldest of these files was there for `level0_seconds`.
    """

    table: str
    batch_id: int
    skipped: bool
    snapshot_ids: tuple[int, ...]
    input_rows: int
    stored_rows: int
    stored_bytes: int
    level_files: tuple[tuple[int, int], ...]
    compacted_files: int
    compaction_dropped: bool
    rejected_rows: int
    expired_snapshots: int
    spilled_bytes: int
    behind_records: int | None
    plan_seconds: float
    task_seconds: float
    commit_seconds: float
    total_seconds: float
    postponed_rows: int = 0
    postponed_bytes: int = 0
    postponed_seconds: int = 0
    hidden_rows: int = 0
    hidden_seconds: int = 0
    bucket_runs: tuple[tuple[int, int], ...] = ()
    most_runs: int = 0
    crowded_buckets: int = 0
    level0_bytes: int = 0
    level0_seconds: int = 0
    open_items: int = 0
    open_items_seconds: int = 0
    back_pressure_seconds: float = 0.0
    storage_requests: int = 0
    created_tags: tuple[str, ...] = ()
    dropped_partitions: tuple[str, ...] = ()
    done_partitions: tuple[str, ...] = ()
    skipped_records: tuple[tuple[str, int], ...] = ()
    unexpected_rows: tuple[tuple[str, int], ...] = ()

    def line(self) -> str:
        """Returns the report on one line."""
        if self.skipped:
            compacted = counted(self.compacted_files, "file")
            remainder = f"compacted {compacted}" if self.compacted_files else "nothing left to do"
            return " | ".join([f"batch {self.batch_id}: already in the table, {remainder}", *self._hidden()])
        files = " ".join(f"L{level}+{count}" for level, count in self.level_files) or "no files"
        compacted = f", compacted {self.compacted_files}" if self.compacted_files else ""
        stored = f"stored {counted(self.stored_rows, 'row')}, {_size(self.stored_bytes)}"
        parts = [
            f"batch {self.batch_id}: {counted(self.input_rows, 'row')} in {self.total_seconds:.2f} s{self._rate()}",
            stored if self.stored_rows else "stored nothing",
            f"{files}{compacted}",
            f"plan {self.plan_seconds:.2f} tasks {self.task_seconds:.2f} commit {self.commit_seconds:.2f} s",
            "snapshot " + ("-".join(str(i) for i in self.snapshot_ids) or "none"),
        ]
        if self.behind_records is not None:
            parts.append(f"{counted(self.behind_records, 'record')} behind")
        if self.postponed_rows:
            waiting = counted(self.postponed_rows, "row")
            parts.append(f"{waiting} postponed, for up to {age_text(self.postponed_seconds)}")
        parts += self._hidden()
        if self.crowded_buckets:
            parts.append(self._crowded())
        if self.rejected_rows:
            parts.append(f"rejected {self.rejected_rows:,}")
        if self.skipped_records:
            parts.append("skipped " + ", ".join(_of_kind(kind, count) for kind, count in self.skipped_records))
        if self.unexpected_rows:
            parts.append(
                "did not meet expectations: " + ", ".join(f"{name} {count:,}" for name, count in self.unexpected_rows)
            )
        if self.expired_snapshots:
            parts.append(f"expired {counted(self.expired_snapshots, 'snapshot')}")
        if self.created_tags:
            parts.append(f"created tag {', '.join(self.created_tags)}")
        if self.dropped_partitions:
            parts.append(f"dropped {counted(len(self.dropped_partitions), 'partition')} that had expired")
        if self.done_partitions:
            parts.append(f"marked {counted(len(self.done_partitions), 'partition')} as done")
        if self.storage_requests:
            parts.append(counted(self.storage_requests, "request"))
        if self.spilled_bytes:
            parts.append(f"spilled {_size(self.spilled_bytes)}")
        if self.compaction_dropped:
            parts.append("the compaction conflicted with another commit and will be repeated")
        return " | ".join(parts)

    def _rate(self) -> str:
        """Returns the number of rows for each second, in parentheses; empty if there are no rows or no time has
        passed.
        """
        if not self.input_rows or self.total_seconds <= 0:
            return ""
        rate = self.input_rows / self.total_seconds
        return f" ({rate:,.0f}/s)" if rate >= 10 else f" ({max(rate, 0.1):.1f}/s)"

    def _crowded(self) -> str:
        spent = f", {self.back_pressure_seconds:.2f} s spent on them" if self.back_pressure_seconds else ""
        verb = "had" if self.back_pressure_seconds else "has" if self.crowded_buckets == 1 else "have"
        return f"{counted(self.crowded_buckets, 'bucket')} {verb} too many sorted runs{spent}"

    def _hidden(self) -> list[str]:
        if not self.hidden_rows:
            return []
        waiting = counted(self.hidden_rows, "row")
        return [f"{waiting} committed but not readable yet, for up to {age_text(self.hidden_seconds)}"]


def describe_batch(
    table: str,
    batch_id: int,
    outcome: Outcome,
    report: CommitReport,
    seconds: tuple[float, float, float],
    behind: int | None,
    postponed: PostponeBacklog,
    hidden: Hidden,
    world: World,
) -> BatchReport:
    """Returns the report of a written batch. `seconds` are the times of planning, of the tasks and of the commit.

    `behind` counts the records that wait at the source. `postponed` describes the rows that wait in the postpone
    bucket, and `hidden` the rows that readers do not see.
    """
    messages = outcome.messages
    plan, tasks, commit = seconds
    return BatchReport(
        table=table,
        batch_id=batch_id,
        skipped=False,
        snapshot_ids=report.committed.snapshot_ids,
        input_rows=outcome.accepted_rows,
        stored_rows=sum(f.row_count for m in messages for f in m.new_files),
        stored_bytes=sum(f.file_size for m in messages for f in m.new_files),
        level_files=_levels(messages),
        compacted_files=_compacted(messages, report),
        compaction_dropped=report.committed.dropped is not None,
        rejected_rows=report.rejected_rows,
        skipped_records=outcome.skipped_records,
        unexpected_rows=outcome.unexpected,
        expired_snapshots=report.expired_snapshots,
        spilled_bytes=sum(s.spilled_bytes for s in outcome.stats),
        behind_records=behind,
        plan_seconds=plan,
        task_seconds=tasks,
        commit_seconds=commit,
        total_seconds=plan + tasks + commit,
        postponed_rows=postponed.rows,
        postponed_bytes=postponed.size_bytes,
        postponed_seconds=postponed.age_seconds(world.clock.local_ms()),
        hidden_rows=hidden.rows,
        hidden_seconds=hidden.age_seconds(world.clock.local_ms()),
        created_tags=report.upkept.tags,
        dropped_partitions=report.upkept.dropped_partitions,
        done_partitions=report.upkept.done_partitions,
    )


def with_backlog(report: BatchReport, relief: Relief, items: OpenItems, world: World) -> BatchReport:
    """Returns the report with the work that waits: `relief` has the number of sorted runs that are not compacted yet,
    and `items` has the number of items of compaction plans that are not done.
    """
    crowding = relief.crowding
    return replace(
        report,
        bucket_runs=crowding.buckets,
        most_runs=crowding.most_runs,
        crowded_buckets=relief.crowded_before,
        level0_bytes=crowding.level0_bytes,
        level0_seconds=crowding.age_seconds(world.clock.local_ms()),
        open_items=items.count,
        open_items_seconds=items.age_seconds(world.clock.now_ms()),
        back_pressure_seconds=relief.spent_ms / 1000,
    )


def describe_skipped(
    table: str,
    batch_id: int,
    messages: tuple[CommitMessage, ...],
    report: CommitReport,
    seconds: float,
    hidden: Hidden,
    world: World,
) -> BatchReport:
    """Returns the report of a batch that was in the table already, so that only its compaction was still due.
    `messages` are the results of this compaction, `report` is the report of its commit, and `seconds` is the time that
    the batch took. `hidden` counts the rows that readers still do not see.
    """
    return BatchReport(
        table=table,
        batch_id=batch_id,
        skipped=True,
        snapshot_ids=report.committed.snapshot_ids,
        input_rows=0,
        stored_rows=0,
        stored_bytes=0,
        level_files=_levels(messages),
        compacted_files=_compacted(messages, report),
        compaction_dropped=report.committed.dropped is not None,
        rejected_rows=0,
        expired_snapshots=report.expired_snapshots,
        spilled_bytes=0,
        behind_records=None,
        plan_seconds=0.0,
        task_seconds=0.0,
        commit_seconds=0.0,
        total_seconds=seconds,
        hidden_rows=hidden.rows,
        hidden_seconds=hidden.age_seconds(world.clock.local_ms()),
        created_tags=report.upkept.tags,
        dropped_partitions=report.upkept.dropped_partitions,
        done_partitions=report.upkept.done_partitions,
    )


def tell(report: BatchReport) -> None:
    """Logs the report on one line. The log record has the report's fields, for log handlers that use them."""
    _LOG.info("%s", report.line(), extra={"bucketline": report})


def as_json(report: BatchReport, **more: object) -> str:
    """Returns one line of text: a JSON object with the names and values in `more`, then the report's fields."""
    return json.dumps({**more, **{name: getattr(report, name) for name in BatchReport.__slots__}})


def _levels(messages: tuple[CommitMessage, ...]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted(Counter(f.level for m in messages for f in m.made_files).items()))


def _compacted(messages: tuple[CommitMessage, ...], report: CommitReport) -> int:
    kinds = [s.commit_kind for s in report.committed.snapshots]
    return sum(len(m.compact_before) for m in messages) if CommitKind.COMPACT in kinds else 0


def _of_kind(kind: str, count: int) -> str:
    """Returns a count with the kind of record in the plural, such as `2 heartbeats` or `2 records of another table`."""
    noun, of, rest = kind.partition(" of ")
    return f"{counted(count, noun)}{of}{rest}"


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError(count)
