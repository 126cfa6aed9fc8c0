"""The result of a batch write: an integer (the snapshot's id) that also says whether the rows can be read."""

from typing import Any, Self


class WriteResult(int):
    """The id of the newest snapshot after the write, with three attributes. The rows of the write are in the table in
    every case.

    - `visible` is True if batch readers see the rows. It is False if the rows wait for a compaction that this write did
      not have to do: with `write-only`, for postponed rows, and with `lookup-compact` = `gentle`.
    - `dropped` says why the compaction that this write had to do is not in the table. It is None if the compaction is
      in the table, or if this write had no compaction to do.
    - `replanned` is how often a change of rows (such as an UPDATE) was planned again, because another writer had
      changed the same rows meanwhile.
    """

    dropped: str | None
    visible: bool
    replanned: int

    def __new__(cls, snapshot_id: int, *, dropped: str | None = None, visible: bool = True, replanned: int = 0) -> Self:
        result = super().__new__(cls, snapshot_id)
        result.dropped = dropped
        result.visible = visible
        result.replanned = replanned
        return result

    def counting(self, replanned: int) -> Self:
        """Returns the same result with `replanned` set: the number of times that the change was planned again."""
        return type(self)(int(self), dropped=self.dropped, visible=self.visible, replanned=replanned)

    def __getnewargs_ex__(self) -> tuple[tuple[int], dict[str, Any]]:
        return (int(self),), {"dropped": self.dropped, "visible": self.visible, "replanned": self.replanned}
