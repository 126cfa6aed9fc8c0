"""Finds damaged names in metadata: names that differ from a known name in one flipped bit.

Members and options that this release does not know are normally ignored, because other writers may use them. But if a
known name is missing, and an unknown name differs from the known name in a single bit, the unknown name was probably
damaged on disk. If it were ignored, its value would be lost.

The options of a table also contain properties of catalogs, other tools and users. Some names are accepted although they
look like a damaged option: names near an option that readers do not use, and plain words with a capital letter.
"""

from collections.abc import Collection, Iterable

from bucketline.conf.table.field_options import DEFAULT_FUNCTION, PREFIX, SUFFIXES
from bucketline.conf.table.other_options import HARMLESS
from bucketline.conf.table.table_options import KNOWN_KEYS
from bucketline.state.errors import CorruptFileError

_FAMILY = PREFIX.rstrip(".")
_SUFFIXES = (*(f".{suffix}" for suffix in SUFFIXES), DEFAULT_FUNCTION.removeprefix(_FAMILY))
_COMPARED = frozenset(k for k in KNOWN_KEYS if k not in HARMLESS or not k.isalpha())


def check_names(present: Iterable[str], known: Collection[str], kind: str) -> None:
    """Raises CorruptFileError if an unknown name differs by one bit from a known name that is missing. `kind` is the
    word for such a name in the error, for example `snapshot member`.
    """
    names = set(present)
    for name in names:
        near = flipped_name(name, known)
        if near is not None and near not in names:
            raise CorruptFileError(f"{kind} {name!r} is {near!r} with one bit flipped", name=name, expected=near)


def flipped_name(name: str, known: Collection[str]) -> str | None:
    """Returns the known name that differs from `name` in one bit. Returns None if `name` itself is known, or if there
    is no such name.
    """
    if name in known:
        return None
    return next((k for k in known if len(k) == len(name) and _is_one_bit_off(name, k)), None)


def _is_one_bit_off(one: str, other: str) -> bool:
    different = [ord(a) ^ ord(b) for a, b in zip(one, other, strict=True) if a != b]
    return len(different) == 1 and different[0] < 0x80 and different[0].bit_count() == 1


def check_options(options: Collection[str]) -> None:
    """Raises CorruptFileError if the name of an option differs by one bit from the name of a known option that is
    missing.
    """
    for name in options:
        near = flipped_name(name, _COMPARED)
        if near is not None and near not in options and not _is_capitalized_word(name, near):
            raise CorruptFileError(f"option {name!r} is {near!r} with one bit flipped", name=name, expected=near)
        first, _, rest = name.partition(".")
        if f".{rest}".endswith(_SUFFIXES) and flipped_name(first, (_FAMILY,)) is not None:
            raise CorruptFileError(f"option {name!r} begins with {_FAMILY!r} with one bit flipped", name=name)


def _is_capitalized_word(name: str, near: str) -> bool:
    return near.isalpha() and name == near.capitalize()
