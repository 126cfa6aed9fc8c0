"""What signals ask of a job, and what becomes of a process that gets them."""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from bucketline.streaming.job.ending import Ending, signals_to


class Left(Exception):
    """The process would be gone."""


class Moments:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def give_up(code: int, why: str) -> None:
    raise Left("start", code, why)


def leave(code: int, why: str) -> None:
    raise Left("batch", code, why)


@pytest.fixture
def clock() -> Moments:
    return Moments()


@pytest.fixture
def ending(clock: Moments) -> Ending:
    return Ending(give_up, leave, clock)


def test_before_the_session_is_up_the_first_signal_ends_the_start(ending: Ending) -> None:
    with pytest.raises(Left) as left:
        ending.ask(signal.SIGINT)
    assert left.value.args[:2] == ("start", 130)
    assert "SIGINT: the job ended before Spark was up" in left.value.args[2]


def test_signals_within_a_second_are_one_and_a_later_one_ends_the_job_at_once(ending: Ending, clock: Moments) -> None:
    ending.session_is_up()
    assert ending.asked_by is None
    ending.ask(signal.SIGTERM)
    clock.now += 0.9
    ending.ask(signal.SIGINT)
    assert ending.asked_by == "SIGTERM"
    clock.now += 0.2
    with pytest.raises(Left) as left:
        ending.ask(signal.SIGTERM)
    assert left.value.args[:2] == ("batch", 143)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_handlers_are_put_back(number: signal.Signals, ending: Ending) -> None:
    outer = signal.signal(number, signal.SIG_DFL)
    try:
        ending.session_is_up()
        with signals_to(ending):
            signal.raise_signal(number)
            assert ending.asked_by == number.name
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, outer)


def test_a_hangup_that_is_ignored_stays_ignored(ending: Ending) -> None:
    outer = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals_to(ending):
            signal.raise_signal(signal.SIGHUP)
        assert ending.asked_by is None and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, outer)


def test_outside_of_the_main_thread_signals_are_left_alone(ending: Ending) -> None:
    before, seen = signal.getsignal(signal.SIGTERM), []

    def look() -> None:
        with signals_to(ending):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]


_WAITS = """
import signal, subprocess, sys
from bucketline.streaming.job.ending import process_ending, signals_to
ending = process_ending()
with signals_to(ending):
    child = subprocess.Popen(["sleep", "600"])
    if sys.argv[1] == "up":
        ending.session_is_up()
        ending.ask(signal.SIGTERM)
    print(child.pid, flush=True)
    while True:
        signal.pause()
"""


@pytest.fixture
def waiting() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", _WAITS, "starting"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    yield process
    process.kill()
    process.communicate()


def test_a_start_that_is_given_up_takes_its_children_along_and_prints_one_line(waiting: subprocess.Popen[str]) -> None:
    assert waiting.stdout is not None and waiting.stderr is not None
    waiting.stdout.readline()
    waiting.send_signal(signal.SIGTERM)
    assert waiting.wait(30) == 143
    assert waiting.stdout.read() == "", "the child held the pipe open until it was killed"
    assert waiting.stderr.read() == "SIGTERM: the job ended before Spark was up; no batch was begun\n"
