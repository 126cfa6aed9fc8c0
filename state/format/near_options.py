"""Table options that differ from one of Paimon's in one flipped bit.

Tables also have properties of catalogs, other tools and users. A name that may well be such a property is ignored, even
if it looks like an option: names that readers do not use, and plain words with a capital.
"""

from collections.abc import Collection

from bucketline.conf.table.field_options import DEFAULT_FUNCTION, PREFIX, SUFFIXES
from bucketline.conf.table.other_options import HARMLESS
from bucketline.conf.table.table_options import KNOWN_KEYS
from bucketline.state.errors import CorruptFileError
from bucketline.state.format.near_names import flipped_name

_FAMILY = PREFIX.rstrip(".")
_SUFFIXES = (*(f".{suffix}" for suffix in SUFFIXES), DEFAULT_FUNCTION.removeprefix(_FAMILY))
_COMPARED = frozenset(k for k in KNOWN_KEYS if k not in HARMLESS or not k.isalpha())


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
