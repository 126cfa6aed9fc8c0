"""Turns the errors of an object store into StorageError, which says what happened, to which file, and whether trying
again may help.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from bucketline.state.errors import StorageError

try:
    import obstore.exceptions as _named
except ImportError:
    _named = None  # type: ignore[assignment, unused-ignore] # depends on whether obstore is installed

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([^<]*)</Code>")
_SAYS = re.compile(r"<Message>([^<\n]*)")
_QUERY = re.compile(r"\?[^\s\"')]*")
"""Matches the query string of a URL, which may hold a signature."""

_INSTANCE = "169.254.169.254"
"""The addresses at which clouds give keys to programs on their machines. A client tries them last, if it finds no other
keys.
"""

_PASSING = frozenset({408, 409, 412, 425, 429})
"""The HTTP statuses from 400 to 499 after which the same request may succeed."""

RANGE_NOT_THERE = 416

_ENDED = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "SecurityTokenExpired"})
"""The error codes with which stores say that keys have expired."""

_NOT_RENEWED = (
    "; keys that are given as storage options or environment variables are not renewed: start again with new keys, "
    "or use the keys of a container, an instance, a profile or a role"
)

_BAD_REQUEST = 400
_NOT_KNOWN = frozenset({405, 501})
_NOT_TAKEN = frozenset({"InvalidArgument", "InvalidRequest", "NotImplemented"})
"""The answers of stores that do not support the condition of a put: an HTTP status, or an error code with
status 400.
"""


def _classes(*names: str) -> tuple[type[Exception], ...]:
    return () if _named is None else tuple(getattr(_named, name) for name in names)


STORE_ERRORS: tuple[type[Exception], ...] = (*_classes("BaseError"), OSError)
SETTINGS_ERRORS: tuple[type[Exception], ...] = (*STORE_ERRORS, ValueError, TypeError)
"""The exceptions that are raised if a client cannot be made from its settings."""

TAKEN_ERRORS = _classes("AlreadyExistsError", "PreconditionError", "NotModifiedError")
"""The exceptions of clients for the HTTP statuses 409, 412 and 304 after a conditional put."""

_REFUSALS = _classes("PermissionDeniedError", "UnauthenticatedError", "NotSupportedError", "InvalidPathError")


def status_of(error: Exception) -> int | None:
    """Returns the HTTP status of the store's answer; None if there was no answer."""
    match = _STATUS.search(str(error))
    return None if match is None else int(match[1])


def says_keys_have_ended(error: Exception) -> bool:
    """Returns True if the store refused the request because its keys have expired.

    An answer to a HEAD request has no text with the reason. The requests of this library are well-formed, so the status
    400 means that the keys have expired.
    """
    code = _CODE.search(str(error))
    return code[1] in _ENDED if code is not None else status_of(error) == _BAD_REQUEST


def says_condition_is_unknown(error: Exception) -> bool:
    """Returns True if the store refused a put because it does not support the condition of the put; False if it refused
    the put for another reason, such as wrong keys.
    """
    status, code = status_of(error), _CODE.search(str(error))
    return status in _NOT_KNOWN or (status == _BAD_REQUEST and (code is None or code[1] in _NOT_TAKEN))


def object_error(path: str, error: Exception) -> StorageError:
    """Returns the error as a StorageError that names the path."""
    text = str(error)
    status, code = status_of(error), _CODE.search(text)
    no_bucket = code is not None and code[1] in ("NoSuchBucket", "ContainerNotFound")
    missing = not no_bucket and (isinstance(error, FileNotFoundError) or status == 404)
    final = missing or no_bucket or isinstance(error, _REFUSALS)
    final = final or (status is not None and 400 <= status < 500 and status not in _PASSING)
    said = "no such file" if missing else _said(text, status, code[1] if code else None)
    return StorageError(f"{path}: {said}", path=path, retryable=not final, missing=missing, status=status)


@contextmanager
def object_errors(path: str) -> Iterator[None]:
    """Turns errors of the store in the `with` block into StorageError."""
    try:
        yield
    except STORE_ERRORS as e:
        raise object_error(path, e) from e


def _said(text: str, status: int | None, code: str | None) -> str:
    if _INSTANCE in text:
        return (
            "no keys for the store: the storage options and the environment hold no keys, and this machine gives no "
            "keys to its programs"
        )
    says = _SAYS.search(text)
    if status is not None and (code or says):
        answer = f"the store answered {status} {code or ''}{': ' + says[1] if says else ''}".replace("  ", " ")
        return f"{answer}{_NOT_RENEWED}" if code in _ENDED else answer
    first, _, rest = text.partition("\n")
    # The reason is at the end of a chain of causes, which follows the first line.
    causes = re.findall(r"^\s*source: \w*\(?\s*\"([^\"]+)\"", rest, re.MULTILINE)
    return _QUERY.sub("", first if not causes else f"{first}: {causes[-1]}")
