"""The age from which orphan removal may remove a file, and the age from which a commit must check that its own files
still exist.

A file that is written but not committed yet is protected only by its age. Orphan removal never removes a file younger
than `REMOVABLE_MS`. A commit whose files may be older than half of `REMOVABLE_MS` first checks that the files exist.
The other half allows for clocks that differ, and for a slow removal between listing and removing. If possible, ages are
measured with one clock: the clock of the storage, or the clock of the process that planned the work.
"""

REMOVABLE_MS = 86_400_000
"""Orphan files younger than this (one day) are never removed, unless the user says that no process writes to the
table.
"""

PROOF_MS = REMOVABLE_MS // 2
"""A commit whose oldest file has at least this age (half a day) must check that all its files exist."""

CLOCK_SKEW_MS = 3_600_000
"""The largest difference (one hour) between two clocks, or between two readings of a clock that is set during a batch,
for which the rules of this module hold.
"""

QUICK_MS = 30_000
"""If work was planned less than this time ago, its files are young by any clock, so the storage is not asked for their
age.
"""

FRESH_MS = 3_000
"""If the state of a table was read less than this time ago, the table is assumed to be unchanged. If it has changed,
the conflict is found when the snapshot is published.
"""


def is_fresh(elapsed_ms: int) -> bool:
    """Returns True if the state of a table, read `elapsed_ms` ago, need not be read again. Returns False for a negative
    time, which means that the clock was set back.
    """
    return 0 <= elapsed_ms < FRESH_MS


def is_quick(elapsed_ms: int) -> bool:
    """Returns True if work was planned so recently that its files are young, whichever clock measures their age.
    Returns False for a negative time, which means that the clock was set back.
    """
    return 0 <= elapsed_ms < QUICK_MS


def needs_proof(age_ms: int) -> bool:
    """Returns True if a commit must check that its files still exist, because one of them is `age_ms` old."""
    return age_ms + CLOCK_SKEW_MS >= PROOF_MS
