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

    `code` is stable and meant for programs, the message is meant for people, and `fields` has the details. The code,
    the message and the details contain no secrets. Details that callers need for decisions are also attributes, for
    example `path`, the file or table of the error.
    """

    code = "BUCKETLINE"

    def __init__(self, message: str, *, path: str | None = None, **fields: object) -> None:
        self.message = mask_text(message)
        super().__init__(self.message)
        self.fields = mask_fields(fields if path is None else {"path": path, **fields})
        self.path = path if path is None else str(self.fields["path"])

    def reworded(self, message: str, **fields: object) -> Self:
        """Returns the same error with another message. The arguments in `fields` replace details of the same name, or
        are added as new details.
        """
        return type(self)(message, **{**self.fields, **fields})  # type: ignore[arg-type]

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.fields)


class OptionError(BucketlineError):
    """A setting is wrong, unknown or not supported, and the caller must correct it. Nothing has been written.

    `key` is the name of the option. If the option names a column, `column` is this column.
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
    """The caller asked for the removal of orphan files that are so young that a writer may still commit them. Nothing
    has been removed.
    """

    code = "FILES_TOO_YOUNG"


def given(**fields: object) -> dict[str, object]:
    """Returns the arguments that are not None, to be used as the details (`fields`) of an error."""
    return {name: value for name, value in fields.items() if value is not None}


def _rebuild(kind: type[BucketlineError], message: str, fields: dict[str, object]) -> BucketlineError:
    return kind(message, **fields)  # type: ignore[arg-type]
