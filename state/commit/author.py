"""The author of a commit, and the properties that the snapshot gets from the author."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bucketline.state.format.entries import BATCH_COMMIT_IDENTIFIER, Operation


@dataclass(frozen=True, slots=True)
class Author:
    """The writer's name, and the identifier of its commit: a commit of the same user and identifier is the same commit.

    `properties`, the `watermark` and the `operation` are written into the snapshot; the operation is only for people.
    """

    user: str
    identifier: int = BATCH_COMMIT_IDENTIFIER
    properties: Mapping[str, str] = field(default_factory=dict)
    operation: Operation | None = None
    watermark: int | None = None
