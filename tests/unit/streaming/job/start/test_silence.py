"""Nothing is silent for more than five seconds."""

import logging
import time
from dataclasses import dataclass, field

from bucketline.streaming.job.start.silence import Silence, broken_silence


@dataclass
class Watch:
    now: float = 0.0
    lines: list[str] = field(default_factory=list)


def test_what_a_job_does_is_said_every_five_seconds_in_which_nothing_else_is() -> None:
    watch = Watch()
    silence = Silence(watch.lines.append, lambda: watch.now)
    silence.doing("starting Spark")
    for quarter in range(4 * 21):
        watch.now = quarter / 4
        if watch.now == 8:
            silence.heard()
        silence.look()
    assert watch.lines == [f"still starting Spark ({n} s)" for n in (5, 13, 18)]


def test_what_tells_of_itself_is_not_told_of_and_each_phase_counts_from_its_beginning() -> None:
    watch = Watch()
    silence = Silence(watch.lines.append, lambda: watch.now)
    for moment, doing in ((0, "a"), (4, "a"), (4.5, None), (30, "c"), (34, "c"), (36, "c")):
        watch.now = moment
        silence.doing(doing)
        silence.look()
    assert watch.lines == ["still c (6 s)"]
    watch.now = 37
    silence.doing("d")
    watch.now = 42
    silence.look()
    assert watch.lines == ["still c (6 s)", "still d (5 s)"]


def test_several_short_phases_are_not_silent_for_more_than_five_seconds() -> None:
    watch = Watch()
    silence = Silence(watch.lines.append, lambda: watch.now)
    for moment, doing in ((0, "a"), (4, "b"), (6, "b"), (8, "c"), (10, "d"), (12, "d"), (17, "d")):
        watch.now = moment
        silence.doing(doing)
        silence.look()
    assert watch.lines == ["b", "d", "still d (7 s)"]


def test_lines_of_any_of_our_loggers_break_the_silence_and_the_thread_ends_with_the_block() -> None:
    lines: list[str] = []
    logger = logging.getLogger("bucketline.job.of.a.test")
    logger.setLevel(logging.INFO)
    before = list(logging.getLogger("bucketline").handlers)
    with broken_silence("waiting", lines.append) as silence:
        silence._said_at = silence._since = time.monotonic() - 4
        logger.info("something")
        assert time.monotonic() - silence._said_at < 3
        silence._said_at = silence._since = time.monotonic() - 60
        deadline = time.monotonic() + 60
        while not lines and time.monotonic() < deadline:
            time.sleep(0.01)
    assert lines and lines[0].startswith("still waiting (6")
    assert logging.getLogger("bucketline").handlers == before
