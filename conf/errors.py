"""The root of all errors, and those about configuration.

BucketlineError
├── OptionError                 fix the setting
│   └── FilesTooYoungError      ask for older files, or say that nobody writes
└── (bucketline.state.errors)   what a table, a file or a commit made impossible
"""

from bucketline.conf.secrets import mask_fields, mask_text


class BucketlineError(Exception):
    """The base of all errors of this library.

    `code` is stable and meant for programs. The message is meant for people. `fields` holds the details. Neither shows
    secrets.
    """

    code = "BUCKETLINE"

    def __init__(self, message: str, **fields: object) -> None:
        self.message = mask_text(message)
        super().__init__(self.message)
        self.fields = mask_fields(fields)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.fields)


class OptionError(BucketlineError):
    """A setting is wrong, unknown or not honoured; the caller corrects it. Nothing has been written."""

    code = "OPTION"


class FilesTooYoungError(OptionError):
    """Orphan removal was asked for files so young that a writer may still commit them. Nothing has been removed."""

    code = "FILES_TOO_YOUNG"


def _rebuild(kind: type[BucketlineError], message: str, fields: dict[str, object]) -> BucketlineError:
    return kind(message, **fields)
