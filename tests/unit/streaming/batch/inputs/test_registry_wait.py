"""A batch waits while its schema registry does not answer, and fails with the registry's name after that."""

import pytest

from bucketline.conf.job import RecordFormat
from bucketline.conf.sources.registry_options import RegistryOptions
from bucketline.state.determinism import World
from bucketline.streaming.batch.inputs.registry_wait import wait_of, when_registry_answers
from bucketline.streaming.decode.avro.registry import RegistrySchemas
from bucketline.streaming.decode.avro.registry_errors import RegistryDownError, RegistryError
from bucketline.streaming.decode.decode_step import DecodeStep


class Clock:
    """A clock that runs only while somebody waits."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def wait_ms(self, duration_ms: int) -> None:
        self.seconds += duration_ms / 1000

    def elapsed_ms(self) -> int:
        return int(self.seconds * 1000)


class Failing:
    """Work that raises these errors first."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    def __call__(self) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def of_a_task(message: str) -> Exception:
    """What Spark makes of an error of a task: text."""
    return RuntimeError(f"Traceback:\n  File x\nbucketline.streaming.decode.avro.registry_errors.{message}\n\nat java")


def test_a_batch_is_done_again_until_the_registry_answers(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    errors = [
        of_a_task("RegistryDownError: no answer from r:8081"),
        RegistryDownError("no answer"),
        RegistryDownError(""),
    ]
    assert when_registry_answers(Failing(*errors), 120_000, World(pause=clock, stopwatch=clock)) == "done"
    assert clock.seconds == 1 + 2 + 4
    assert "the batch waits until the schema registry answers: no answer from r:8081" in caplog.text


def test_after_the_time_to_wait_the_error_is_the_batchs() -> None:
    clock = Clock()
    with pytest.raises(RegistryDownError):
        when_registry_answers(Failing(*[RegistryDownError("x")] * 99), 5_000, World(pause=clock, stopwatch=clock))
    assert clock.seconds == 3


@pytest.mark.parametrize("error", [RegistryError("refused"), ValueError("x"), of_a_task("RegistryError: refused")])
def test_other_errors_are_not_waited_for(error: Exception) -> None:
    clock = Clock()
    with pytest.raises(type(error)):
        when_registry_answers(Failing(error), 5_000, World(pause=clock, stopwatch=clock))
    assert clock.seconds == 0


def test_the_job_says_how_long() -> None:
    registry = RegistrySchemas(RegistryOptions("http://r", wait_ms=7), "job")
    assert wait_of(DecodeStep(RecordFormat.AVRO, (), reject_limit=1, registry=registry)) == 7
    assert wait_of(DecodeStep(RecordFormat.JSON, (), reject_limit=1)) == 0
    assert wait_of(None) == 0
