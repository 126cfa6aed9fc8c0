"""Names in metadata that differ from a known name in one flipped bit.

Unknown members and options are ignored, because other writers have more of them. But a name that differs in a single
bit from a known, missing name is damaged, and ignoring it would lose its value.

Tables also have properties of catalogs, other tools and users. A name that may well be such a property is ignored, even
if it looks like an option: names that readers do not use, and plain words with a capital.
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
    """Raises CorruptFileError if an unknown name differs by one bit from a known name that is missing."""
    names = set(present)
    for name in names:
        near = flipped_name(name, known)
        if near is not None and near not in names:
            raise CorruptFileError(f"{kind} {name!r} is {near!r} with one bit flipped", name=name, expected=near)


def flipped_name(name: str, known: Collection[str]) -> str | None:
    """Returns the known name that differs from this unknown one in one bit; None when it is known, or there is no such
    name.
    """
    if name in known:
        return None
    return next((k for k in known if len(k) == len(name) and _is_one_bit_off(name, k)), None)


def _is_one_bit_off(one: str, other: str) -> bool:
    different = [ord(a) ^ ord(b) for a, b in zip(one, other, strict=True) if a != b]
    return len(different) == 1 and different[0] < 0x80 and different[0].bit_count() == 1


def check_options(options: Collection[str]) -> None:
    """Raises CorruptFileError if an option differs by one bit from the name of a known option that is missing."""
    for name in options:
        near = flipped_name(name, _COMPARED)
        if near is not None and near not in options and not _is_capitalized_word(name, near):
            raise CorruptFileError(f"option {name!r} is {near!r} with one bit flipped", name=name, expected=near)
        first, _, rest = name.partition(".")
        if f".{rest}".endswith(_SUFFIXES) and flipped_name(first, (_FAMILY,)) is not None:
            raise CorruptFileError(f"option {name!r} is one of {_FAMILY!r} with one bit flipped", name=name)


def _is_capitalized_word(name: str, near: str) -> bool:
    return near.isalpha() and name == near.capitalize()
