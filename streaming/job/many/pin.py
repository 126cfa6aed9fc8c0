"""The settings of a job that affect the rows of its tables. They are pinned (stored) before a batch is committed."""

import hashlib
import json
from collections.abc import Mapping

from bucketline.conf.job import CATALOG, CHECKPOINT, OPTIONS, SOURCE_OPTIONS, SOURCE_READER, STORAGE, TRIGGER, Setting
from bucketline.conf.job_file.references import looked_up
from bucketline.conf.routes.route_options import COMMIT_PARALLELISM, ON_TABLE_FAILURE, TABLES
from bucketline.conf.routes.routed_job import RoutedJob, routed_job
from bucketline.conf.secrets import mask
from bucketline.conf.sink_options import KEY_ORDER

PINNED = "the settings with which the unfinished batch was begun"
_REGISTRY = "source.registry."
_FREE = tuple(o.key for o in (CHECKPOINT, TRIGGER, SOURCE_READER, COMMIT_PARALLELISM, ON_TABLE_FAILURE, KEY_ORDER))
"""Settings that do not affect rows, so a job may change them in the middle of a batch."""
_FREE_NAMES = ("bad-records.", "metrics.")
_FREE_FAMILIES = (SOURCE_OPTIONS, STORAGE, CATALOG, _REGISTRY)
"""Prefixes of settings that say how a system is reached, and of secrets. These settings do not affect rows, because the
offsets of a batch say which records it reads.
"""


def is_pinned(key: str) -> bool:
    """Returns True if a setting affects rows."""
    name = key
    if key.startswith(TABLES):
        name = key.removeprefix(TABLES).partition(".")[2]
    name = name.removeprefix(OPTIONS)
    return name not in _FREE and not key.startswith(_FREE_FAMILIES) and not name.startswith(_FREE_NAMES)


def pinned_settings(job: RoutedJob) -> tuple[str, str]:
    """Returns the settings that affect rows as a text, and the hash of the text."""
    texts = {key: setting.shown for key, setting in job.settings.items() if is_pinned(key)}
    shown = {key: text for key, text in sorted(texts.items()) if mask(key, text) == text}
    text = json.dumps(shown, separators=(",", ":"))
    return text, hashlib.sha256(text.encode()).hexdigest()[:32]


def with_pinned(job: RoutedJob, text: str) -> RoutedJob:
    """Returns the job with the settings in `text` instead of its own. They were stored (pinned) when the unfinished
    batch was begun. Secrets, and settings that do not affect rows, keep their current values.
    """
    texts: Mapping[str, str] = json.loads(text)
    settings = {key: setting for key, setting in job.settings.items() if not is_pinned(key)}
    for key, value in texts.items():
        now = job.settings.get(key)
        is_same = now is not None and now.shown == value
        settings[key] = now if now is not None and is_same else Setting(looked_up(key, value), PINNED, value)
    return routed_job(settings)
