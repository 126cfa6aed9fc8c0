"""Single bits of a table's files flipped, one at a time: what readers find then, and whether it is right."""

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from bucketline.conf.errors import BucketlineError

Read = Callable[[], pa.Table]


@dataclass(frozen=True)
class Flip:
    """A bit of a file."""

    path: Path
    offset: int
    bit: int

    def __str__(self) -> str:
        return f"{self.path.name} at offset {self.offset}, bit {self.bit}"

    def do(self) -> None:
        """Turns the bit over; a second time turns it back."""
        with self.path.open("r+b") as file:
            file.seek(self.offset)
            (byte,) = file.read(1)
            file.seek(self.offset)
            file.write(bytes([byte ^ 1 << self.bit]))


@dataclass
class Outcome:
    """How often reads were right, how often an error said what is broken, and the flips that did something else."""

    right: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"of the reads {self.right} gave the same rows, {self.errors.total()} an error {dict(self.errors)}, "
            f"{len(self.wrong)} wrong rows, {len(self.raw)} a raw error; {len(self.unnamed)} errors name no file"
        )


def draw_flips(paths: list[Path], draw: random.Random) -> Iterator[Flip]:
    """Flips all over the files: half of them by bytes, half by files, at whose ends and beginnings much is said."""
    sizes = [p.stat().st_size for p in paths]
    for number in itertools.count():
        (path,) = draw.choices(paths, sizes) if number % 2 else [draw.choice(paths)]
        size = path.stat().st_size
        offset = draw.choice(
            (draw.randrange(size), draw.randrange(min(size, 400)), size - 1 - draw.randrange(min(size, 400)))
        )
        yield Flip(path, offset, draw.randrange(8))


def try_flips(flips: Iterator[Flip], reads: dict[str, Read], count: int | None = None) -> Outcome:
    """Reads everything after each flip, and compares it with what is read without. `count` ends it after so many flips;
    if no read has failed by then, after the first that makes one fail, or 20 times as many."""
    expected = {name: read() for name, read in reads.items()}
    found = Outcome()
    for number, flip in enumerate(flips):
        if count is not None and number >= (count if found.errors else 20 * count):
            break
        flip.do()
        try:
            for name, read in reads.items():
                _try(flip, name, read, expected[name], found)
        finally:
            flip.do()
    assert all(read().equals(expected[name]) for name, read in reads.items()), "flips were not undone"
    return found


def _try(flip: Flip, name: str, read: Read, expected: pa.Table, found: Outcome) -> None:
    where = f"{flip}, {name}"
    try:
        answer = read()
    except BucketlineError as e:
        found.errors[e.code] += 1
        # A name that leads nowhere is named itself.
        if (
            flip.path.name not in e.message
            and not e.fields.get("missing")
            and str(flip.path.parents[1]) not in e.message
        ):
            found.unnamed.append(f"{where}: {e.code} {e.message[:200]}")
    except Exception as e:  # noqa: BLE001 (anything else is what is looked for)
        found.raw.append(f"{where}: {e!r}"[:300])
    else:
        if answer.equals(expected):
            found.right += 1
        else:
            found.wrong.append(where)
