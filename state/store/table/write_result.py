"""What a batch write returns: a number as ever, which also says whether its rows can be read."""

from typing import Any, Self


class WriteResult(int):
    """The id of the newest snapshot when the write was done, and what came of the write's compaction.

    `visible`: batch readers see the rows. False where nobody was to compact them yet: `write-only`, postponed rows,
    `lookup-compact` = `gentle`. `dropped`: why the compaction that was due is not in the table; None where it is, or
    where none was due. The rows are in the table in every case. `replanned`: how often a change of rows was planned
    again, because another writer had changed the same rows meanwhile.
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
        """The same after so many plans that were lost."""
        return type(self)(int(self), dropped=self.dropped, visible=self.visible, replanned=replanned)

    def __getnewargs_ex__(self) -> tuple[tuple[int], dict[str, Any]]:
        return (int(self),), {"dropped": self.dropped, "visible": self.visible, "replanned": self.replanned}
