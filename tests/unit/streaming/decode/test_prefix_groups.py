"""Texts are grouped by their prefixes, however many and however alike these are."""

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketline.streaming.decode.texts.prefix_groups import group_by_prefix, rests_of


def prefix_of(text: bytes) -> bytes | None:
    head, mark, _ = text.partition(b"|")
    return head + mark if mark else None


def grouped(texts: list[bytes], offset: int = 0) -> dict[bytes, list[tuple[int, bytes]]]:
    values = pa.array([b"skipped|"] * offset + texts, pa.binary()).slice(offset)
    found: dict[bytes, list[tuple[int, bytes]]] = {}
    for group in group_by_prefix(values, np.arange(len(texts)), prefix_of):
        rests = rests_of(values, group.positions, np.full(len(group.positions), len(group.prefix)))
        parts = zip(group.positions.tolist(), rests.to_pylist(), strict=True)
        found.setdefault(group.prefix, []).extend(parts)
    return {prefix: sorted(parts) for prefix, parts in found.items()}


def expected(texts: list[bytes]) -> dict[bytes, list[tuple[int, bytes]]]:
    found: dict[bytes, list[tuple[int, bytes]]] = {}
    for at, text in enumerate(texts):
        prefix = prefix_of(text)
        if prefix is not None:
            found.setdefault(prefix, []).append((at, text[len(prefix) :]))
    return found


PREFIXES = st.text("ab", max_size=20).map(str.encode)


@given(st.lists(st.tuples(PREFIXES, st.sampled_from([b"|", b""]), st.sampled_from([b"", b"x", b"a|b"])), max_size=20))
def test_groups_are_those_of_one_text_at_a_time(parts: list[tuple[bytes, bytes, bytes]]) -> None:
    texts = [b"".join(part) for part in parts]
    assert grouped(texts) == expected(texts)


@pytest.mark.parametrize("seed", range(3))
def test_hundreds_of_prefixes_that_differ_in_a_few_bytes_are_told_apart(seed: int) -> None:
    chosen = random.Random(seed)
    long = bytes(chosen.randrange(97, 123) for _ in range(3000))
    prefixes = [long[:1500] + f"_{n:03}".encode() + long[1500:] + f"_{n:03}|".encode() for n in range(300)]
    texts = [chosen.choice(prefixes) + str(at).encode() for at in range(2000)]
    assert grouped(texts, offset=3) == expected(texts)
