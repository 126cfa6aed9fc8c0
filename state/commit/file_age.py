"""From which age on a file that no snapshot names may be removed, and a writer proves that its files are still there.

A writer that has made its files and not committed them yet is protected by their age alone: orphan removal takes no
file younger than `REMOVABLE_MS`, and a commit whose files may be older than half of that looks for them first. What
lies between the two is for clocks that differ, and for a removal that takes its time between listing and removing.
Ages are those of one clock wherever possible: that of the storage, or that of the process that planned the work.
"""

REMOVABLE_MS = 86_400_000
"""Younger files are never removed, unless the user says that nobody writes: a day."""

PROOF_MS = REMOVABLE_MS // 2
"""From this age of its oldest file on a commit proves that all its files are there: half a day."""

CLOCK_SKEW_MS = 3_600_000
"""How far two clocks may be apart, and one clock may be set back or ahead while a batch runs: an hour."""

QUICK_MS = 30_000
"""Work that was planned so short a time ago is young whatever the storage's clock says, so that it is not asked."""


def is_quick(elapsed_ms: int) -> bool:
    """Whether work that was planned that long ago is certainly young. A clock that was set back proves nothing."""
    return 0 <= elapsed_ms < QUICK_MS


def needs_proof(age_ms: int) -> bool:
    """Whether a commit with a file of that age has to prove that its files are there."""
    return age_ms + CLOCK_SKEW_MS >= PROOF_MS
