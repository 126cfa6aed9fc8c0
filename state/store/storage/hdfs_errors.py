"""Turns the errors of HDFS into StorageError, which says what happened, to which file, and whether trying again may
help.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from bucketline.state.errors import StorageError
from bucketline.state.store.storage.errors import exists_already

_ANSWER = re.compile(r'(?P<kind>\w+)\("(?P<text>.*)', re.DOTALL)
"""Matches an error of the client: RPCError("a.Java.Class", "message"), or InvalidArgument("message")."""

_LOGIN = re.compile(r'GSSAPIError\(.*routine_error: "(?P<kind>\w+)".*?, \d+, "(?P<text>.*)"\)', re.DOTALL)
"""Matches an error of Kerberos."""

_FINAL = frozenset(
    {
        "AccessControlException",
        "AuthorizationException",
        "GSS_S_NO_CRED",
        "DSQuotaExceededException",
        "InvalidPathException",
        "NSQuotaExceededException",
        "ParentNotDirectoryException",
        "PathIsNotEmptyDirectoryException",
        "InvalidArgument",
        "UnsupportedErasureCodingPolicy",
        "UnsupportedFeature",
    }
)
"""The errors for which trying again does not help."""

_EXPLAINED = {
    "AccessControlException": "; let this user read and write the folder",
    "DSQuotaExceededException": "; free some space, or raise the quota of the folder",
    "GSS_S_NO_CRED": (
        "; log in by `kinit`, or set 'security.kerberos.login.principal' and 'security.kerberos.login.keytab'"
    ),
    "NSQuotaExceededException": "; remove files, or raise the quota of the folder",
    "SafeModeException": "; the name node accepts no changes at the moment: wait until it does",
    "UnsupportedFeature": "; the client hdfs-native cannot do that",
}


@contextmanager
def hdfs_errors(path: str) -> Iterator[None]:
    """Turns errors that the client raises in the `with` block into StorageError."""
    try:
        yield
    except FileNotFoundError as e:
        raise StorageError(f"{path}: no such file", path=path, retryable=False, missing=True) from e
    except FileExistsError as e:
        raise exists_already(path) from e
    except (OSError, RuntimeError, ValueError) as e:
        kind, said = _kind_and_text(str(e))
        raise StorageError(
            f"{path}: {said}{_EXPLAINED.get(kind, '')}", path=path, retryable=kind not in _FINAL, missing=False
        ) from e


def _kind_and_text(text: str) -> tuple[str, str]:
    """Returns the name of the error (for a Java class, without its package) and the first line of its message."""
    login = _LOGIN.match(text)
    if login is not None:
        return login["kind"], login["text"]
    answer = _ANSWER.match(text)
    if answer is None:
        return "", text.partition("\n")[0]
    kind, said = answer["kind"], re.split(r'\\n|\n|"\)$', answer["text"])[0]
    if kind == "RPCError":
        name, _, said = said.partition('", "')
        kind = name.rpartition(".")[2]
    return kind, f"{kind}: {said}" if said else kind
