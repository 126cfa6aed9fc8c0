"""Decides which tags writers create automatically, for which snapshots, and when these tags are removed.

Times are local times in the time zone of the tags, converted to milliseconds as if they were UTC.
Source: Paimon 2.0 TagAutoCreation, TagPeriodHandler, TagBatchCreation.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from bucketline.conf.table.choices import TagCreation, TagFormat, TagPeriod
from bucketline.conf.table.table_settings import TagSettings
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.json_files.tag_json import Tag

_EPOCH = datetime(1970, 1, 1)
_BATCH_PREFIX = "batch-write-"
_NO_WATERMARK = -(2**63)

_HOURS = {
    TagFormat.WITH_DASHES: ("%Y-%m-%d %H", r"(\d{4})-(\d{2})-(\d{2}) (\d{2})"),
    TagFormat.WITHOUT_DASHES: ("%Y%m%d %H", r"(\d{4})(\d{2})(\d{2}) (\d{2})"),
    TagFormat.WITHOUT_DASHES_AND_SPACES: ("%Y%m%d%H", r"(\d{4})(\d{2})(\d{2})(\d{2})"),
}
_DAYS = {
    TagFormat.WITH_DASHES: ("%Y-%m-%d", r"(\d{4})-(\d{2})-(\d{2})"),
    TagFormat.WITHOUT_DASHES: ("%Y%m%d", r"(\d{4})(\d{2})(\d{2})"),
    TagFormat.WITHOUT_DASHES_AND_SPACES: ("%Y%m%d", r"(\d{4})(\d{2})(\d{2})"),
}
_MINUTES = ("%Y%m%d%H%M", r"(\d{4})(\d{2})(\d{2})(\d{2})(\d{2})")


@dataclass(frozen=True, slots=True)
class TagPlan:
    """The rules by which a table's writers create tags: when a tag is due, and what its name is. `zone` is the time
    zone of the times in the names.
    """

    settings: TagSettings
    zone: tzinfo | None

    @property
    def creates(self) -> bool:
        """Returns True if commits can create tags."""
        return self.settings.creation in (TagCreation.PROCESS_TIME, TagCreation.WATERMARK)

    def time_of(self, snapshot: Snapshot) -> int | None:
        """Returns the time of a snapshot by which tags are created: its commit time or its watermark. Returns None if
        tags are created by watermarks and the snapshot has none.
        """
        if self.settings.creation is TagCreation.PROCESS_TIME:
            return self._local(snapshot.time_ms)
        if snapshot.watermark is None or snapshot.watermark == _NO_WATERMARK:
            return None
        return self._local(snapshot.watermark)

    def named_time(self, name: str) -> int | None:
        """Returns the time in the name of a tag; None if writers do not create tags with such a name."""
        text = name.split(" ")[0] if self._is_daily else name
        match = re.fullmatch(self._form[1], text, re.ASCII)
        if match is None:
            return None
        try:
            year, month, day, hour, minute = (*map(int, match.groups()), 0, 0)[:5]
            return _ms_of(datetime(year, month, day, hour, minute))
        except ValueError:
            return None

    def name_of(self, time_ms: int) -> str:
        """Returns the name of the tag for a time."""
        return (_EPOCH + timedelta(milliseconds=time_ms)).strftime(self._form[0])

    def next_name(self, snapshot: Snapshot, last_ms: int | None) -> str | None:
        """Returns the name of the tag that must be created for a snapshot; None if no tag is due. `last_ms` is the time
        of the newest tag, or None.
        """
        time, period = self.time_of(snapshot), self.settings.period_ms
        if time is None:
            return None
        if last_ms is None:
            return self.name_of(_before(time, period))
        due_ms = last_ms + period
        if time - self.settings.delay_ms < due_ms + period:
            return None
        return self.name_of(due_ms if self.settings.fills_gaps else _before(time, period))

    def batch_name(self, snapshot: Snapshot) -> str:
        """Returns the name of the tag for the snapshot of a batch write. If the tag exists, it moves to this
        snapshot.
        """
        own = self.settings.batch_name
        if own is not None:
            return own
        day = _EPOCH + timedelta(milliseconds=self._local(snapshot.time_ms))
        return f"{_BATCH_PREFIX}{day:%Y-%m-%d}"

    def is_created(self, name: str) -> bool:
        """Returns True if a tag may have been created by a writer: its name has the form of the names that writers give
        to tags.
        """
        if self.settings.creation is TagCreation.BATCH:
            return name.startswith(_BATCH_PREFIX) or name == self.settings.batch_name
        return self.named_time(name) is not None

    def too_many(self, tags: Iterable[Tag]) -> list[str]:
        """Returns the names of the tags to remove: the oldest tags that writers created, so that `tag.num-retained-max`
        of such tags stay.
        """
        most = self.settings.most
        if most is None:
            return []
        own = sorted((t for t in tags if self.is_created(t.name)), key=lambda t: (t.snapshot.id, t.name))
        return [t.name for t in own[: max(0, len(own) - most)]]

    def _local(self, time_ms: int) -> int:
        utc = datetime.fromtimestamp(time_ms / 1000, UTC)
        offset = utc.astimezone(self.zone).utcoffset() or timedelta()
        return time_ms + offset // timedelta(milliseconds=1)

    @property
    def _is_daily(self) -> bool:
        return not self.settings.has_own_period and self.settings.period is TagPeriod.DAILY

    @property
    def _form(self) -> tuple[str, str]:
        if self.settings.has_own_period:
            return _MINUTES
        if self.settings.period is TagPeriod.DAILY:
            return _DAYS[self.settings.form]
        return _HOURS[TagFormat.WITH_DASHES if self.settings.period is TagPeriod.TWO_HOURS else self.settings.form]


def _before(time_ms: int, period_ms: int) -> int:
    """Returns the start of the last period that has ended before `time_ms`."""
    return time_ms // period_ms * period_ms - period_ms


def _ms_of(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(milliseconds=1)
