"""The root of all errors, and those about configuration.

BucketlineError
├── OptionError                 fix the setting
│   └── FilesTooYoungError      ask for older files, or say that nobody writes
└── (bucketline.state.errors)   what a table, a file or a commit made impossible
"""

from typing import Self

from bucketline.conf.secrets import mask_fields, mask_text


class BucketlineError(Exception):
    """The base of all errors of this library.

    `code` is stable and meant for programs. The message is meant for people. `fields` holds the details. Neither shows
    secrets. What a caller decides by is an attribute as well: `path` is the file or table that the error is about.
    """

    code = "BUCKETLINE"

    def __init__(self, message: str, *, path: str | None = None, **fields: object) -> None:
        self.message = mask_text(message)
        super().__init__(self.message)
        self.fields = mask_fields(fields if path is None else {"path": path, **fields})
        self.path = path if path is None else str(self.fields["path"])

    def reworded(self, message: str, **fields: object) -> Self:
        """The same error with another message, and with these details beside or instead of its own."""
        return type(self)(message, **{**self.fields, **fields})  # type: ignore[arg-type]

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.fields)


class OptionError(BucketlineError):
    """A setting is wrong, unknown or not honoured; the caller corrects it. Nothing has been written.

    `key` is the option, `column` the column that it is about.
    """

    code = "OPTION"

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        key: str | None = None,
        column: str | None = None,
        **fields: object,
    ) -> None:
        super().__init__(message, path=path, **given(key=key, column=column), **fields)
        self.key, self.column = key, column


class FilesTooYoungError(OptionError):
    """Orphan removal was asked for files so young that a writer may still commit them. Nothing has been removed."""

    code = "FILES_TOO_YOUNG"


def given(**fields: object) -> dict[str, object]:
    """Those of the details that say something."""
    return {name: value for name, value in fields.items() if value is not None}


def _rebuild(kind: type[BucketlineError], message: str, fields: dict[str, object]) -> BucketlineError:
    return kind(message, **fields)  # type: ignore[arg-type]
