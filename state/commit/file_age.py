"""The age from which an orphan file may be removed, and from which a commit must prove that its files exist.

Files that are written and not committed yet are protected by their age alone. Orphan removal takes no file younger than
`REMOVABLE_MS`. A commit whose files may be older than half of this time checks first that they exist. The rest of the
time allows for clocks that differ, and for a removal that is slow between listing and removing. Ages are measured by
one clock where possible: the storage's, or that of the process that planned the work.
"""

REMOVABLE_MS = 86_400_000
"""Younger files are never removed, unless the user says that no process writes to the table: a day."""

PROOF_MS = REMOVABLE_MS // 2
"""A commit whose oldest file has this age must prove that all its files exist: half a day."""

CLOCK_SKEW_MS = 3_600_000
"""How far two clocks may be apart, and one clock may be set back or ahead while a batch runs: an hour."""

QUICK_MS = 30_000
"""Work planned less than this ago is young whatever the storage's clock says, so the storage is not asked."""

FRESH_MS = 3_000
"""A table that was looked at less than this ago is assumed to be unchanged: if it has changed, the conflict is found
when the snapshot is published.
"""


def is_fresh(elapsed_ms: int) -> bool:
    """Whether a table that was looked at that long ago needs no second look; False when the clock was set back."""
    return 0 <= elapsed_ms < FRESH_MS


def is_quick(elapsed_ms: int) -> bool:
    """Whether work was planned so recently that its files are young by any clock; False for a negative time, when the
    clock was set back.
    """
    return 0 <= elapsed_ms < QUICK_MS


def needs_proof(age_ms: int) -> bool:
    """Whether a commit with a file of that age must prove that its files exist."""
    return age_ms + CLOCK_SKEW_MS >= PROOF_MS
