"""Clocks and ids: units and shapes that files on disk rely on."""

import os
import time
import uuid

import pytest

from bucketline.state.determinism import SYSTEM_CLOCK, SYSTEM_IDS


def test_local_time_is_the_wall_clock_read_as_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.environ.get("TZ")
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        ahead_ms = SYSTEM_CLOCK.local_ms() - SYSTEM_CLOCK.now_ms()
    finally:
        if before is None:
            monkeypatch.delenv("TZ")
        else:
            monkeypatch.setenv("TZ", before)
        time.tzset()
    assert abs(ahead_ms - 8 * 3600 * 1000) < 1000


def test_ids_are_canonical_and_differ() -> None:
    first, second = SYSTEM_IDS.new_uuid(), SYSTEM_IDS.new_uuid()
    assert first != second
    assert str(uuid.UUID(first)) == first
