"""The base class of all errors, and the errors about configuration.

BucketlineError
├── OptionError                 fix the setting
│   └── FilesTooYoungError      ask for older files, or state that nobody writes to the table
└── (bucketline.state.errors)   errors of tables, files and commits
"""

from typing import Self

from bucketline.conf.secrets import mask_fields, mask_text


class BucketlineError(Exception):
    """The base of all errors of this library.

    `code` is stable and meant for programs; the message is meant for people; `fields` holds the details. None of them
    shows a secret. Details that callers need for a decision are attributes too, as `path`: the file or table of the
    error.
    """

    code = "BUCKETLINE"

    def __init__(self, message: str, *, path: str | None = None, **fields: object) -> None:
        self.message = mask_text(message)
        super().__init__(self.message)
        self.fields = mask_fields(fields if path is None else {"path": path, **fields})
        self.path = path if path is None else str(self.fields["path"])

    def reworded(self, message: str, **fields: object) -> Self:
        """The same error with another message. `fields` replaces details of the same name and adds the others."""
        return type(self)(message, **{**self.fields, **fields})  # type: ignore[arg-type]

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.fields)


class OptionError(BucketlineError):
    """A setting is wrong, unknown or not honoured; the caller corrects it. Nothing has been written.

    `key` is the option; `column` is the column that the option names, if any.
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
    """The arguments whose value is not None, as the details (`fields`) of an error."""
    return {name: value for name, value in fields.items() if value is not None}


def _rebuild(kind: type[BucketlineError], message: str, fields: dict[str, object]) -> BucketlineError:
    return kind(message, **fields)  # type: ignore[arg-type]
