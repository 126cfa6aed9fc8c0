"""Spark settings that affect the sink: settings that are refused, and settings that cause a warning, each with the
reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bucketline.conf.errors import OptionError

ADVISED: Mapping[str, str] = {
    "spark.speculation": "false",
    "spark.python.worker.reuse": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.streaming.stopActiveRunOnRestart": "true",
}
"""Settings in bucketline's template for spark-defaults.conf. A job also runs without them."""


@dataclass(frozen=True, slots=True)
class _Rule:
    key: str
    values: tuple[str, ...] | None  # The values, in lower case, to which the rule applies; None means any value.
    why: str


_REFUSED = (
    _Rule("spark.remote", None, "Spark Connect does not run foreachBatch on the driver; start a classic session"),
    _Rule("spark.api.mode", ("connect",), "Spark Connect does not run foreachBatch on the driver; use 'classic'"),
)
_UNWISE = (
    _Rule(
        "spark.speculation", ("true",), "a second attempt of a task writes its files again and leaves them as orphans"
    ),
    _Rule("spark.python.worker.reuse", ("false",), "each task then starts Python and loads Arrow again"),
    _Rule(
        "spark.sql.execution.arrow.maxRecordsPerBatch",
        ("0", "-1"),
        "without a limit, a record batch loads a whole partition into memory",
    ),
)


def check_spark_settings(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Returns advice about a session's settings, one sentence for each setting; empty if there is no advice.

    Raises OptionError for settings with which the sink cannot work.
    """
    for rule in _REFUSED:
        if _applies(rule, settings):
            raise OptionError(
                f"Spark setting '{rule.key}' = {settings[rule.key]!r} is not supported: {rule.why}", key=rule.key
            )
    return tuple(f"{rule.key} = {settings[rule.key]}: {rule.why}" for rule in _UNWISE if _applies(rule, settings))


def _applies(rule: _Rule, settings: Mapping[str, str]) -> bool:
    text = settings.get(rule.key)
    return text is not None and (rule.values is None or text.strip().lower() in rule.values)
