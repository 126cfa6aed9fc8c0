"""Names in metadata that are another name but for one flipped bit.

Members and options that are not known are passed over, since other writers have more of them. One that differs in a
single bit from a known one that is not there is no other writer's: to pass over it would lose what it says.
"""

from collections.abc import Collection, Iterable

from bucketline.state.errors import CorruptFileError


def check_names(found: Iterable[str], known: Collection[str], what: str) -> None:
    """Returns if no unknown name is a known one, which is missing, with one bit flipped. Raises CorruptFileError."""
    names = set(found)
    for name in names:
        near = flipped_name(name, known)
        if near is not None and near not in names:
            raise CorruptFileError(f"{what} {name!r} is {near!r} with one bit flipped", name=name, expected=near)


def flipped_name(name: str, known: Collection[str]) -> str | None:
    """The known name that this unknown one is but for one bit; None when it is known, or like none."""
    if name in known:
        return None
    return next((k for k in known if len(k) == len(name) and _is_one_bit_off(name, k)), None)


def _is_one_bit_off(one: str, other: str) -> bool:
    different = [ord(a) ^ ord(b) for a, b in zip(one, other, strict=True) if a != b]
    return len(different) == 1 and different[0] < 0x80 and different[0].bit_count() == 1
