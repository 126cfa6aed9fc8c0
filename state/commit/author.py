"""The author of a commit: who commits, and what the snapshot says about that."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bucketline.state.format.entries import BATCH_COMMIT_IDENTIFIER, Operation


@dataclass(frozen=True, slots=True)
class Author:
    """The commit user (the name of the writer) and the commit identifier. Two commits with the same user and identifier
    are the same commit.

    `properties`, `watermark` and `operation` are written into the snapshot. `operation` is only information for people
    who read the snapshot.
    """

    user: str
    identifier: int = BATCH_COMMIT_IDENTIFIER
    properties: Mapping[str, str] = field(default_factory=dict)
    operation: Operation | None = None
    watermark: int | None = None
