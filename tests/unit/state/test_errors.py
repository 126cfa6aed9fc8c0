"""What a caller decides by is an attribute of an error, and stays one wherever the error is carried."""

import pickle

import pytest

from bucketline.conf.errors import BucketlineError, OptionError
from bucketline.state.errors import (
    CommitConflictError,
    CommittedNotVisibleError,
    CorruptFileError,
    IndexFault,
    IndexStateError,
    StorageError,
    UnsupportedTableError,
)
from bucketline.streaming.batch.recover import CheckpointMismatchError

ERRORS: tuple[tuple[BucketlineError, dict[str, object]], ...] = (
    (
        StorageError("m", path="/t", retryable=True, published=False),
        {"retryable": True, "missing": False, "published": False},
    ),
    (StorageError("m"), {"retryable": False, "missing": False, "published": None, "path": None}),
    (CommitConflictError("m", rule="rows-changed", bucket=1), {"rule": "rows-changed"}),
    (CorruptFileError("m", path="/f", offset=7), {"path": "/f", "offset": 7, "version": None}),
    (CommittedNotVisibleError("m", snapshot_id=3), {"snapshot_id": 3}),
    (IndexStateError("m", fault=IndexFault.LOCKED), {"fault": IndexFault.LOCKED}),
    (OptionError("m", key="bucket", column="c"), {"key": "bucket", "column": "c"}),
    (UnsupportedTableError("m", column="c"), {"column": "c"}),
    (CheckpointMismatchError("m", checkpoint_batch=4), {"checkpoint_batch": 4, "history_complete": False}),
)


@pytest.mark.parametrize(("error", "expected"), ERRORS)
def test_attributes_survive_a_journey_to_another_process_and_another_wording(
    error: BucketlineError, expected: dict[str, object]
) -> None:
    reworded = error.reworded("other", more=1)
    for found in (error, pickle.loads(pickle.dumps(error)), reworded):
        assert type(found) is type(error)
        assert {name: getattr(found, name) for name in expected} == expected
        assert all(found.fields[name] == value for name, value in expected.items() if value is not None)
    assert reworded.message == "other" and reworded.fields == {**error.fields, "more": 1}


def test_an_attribute_shows_no_secret() -> None:
    assert StorageError("m", path="s3://key:secret@b/c").path == "s3://***@b/c"
