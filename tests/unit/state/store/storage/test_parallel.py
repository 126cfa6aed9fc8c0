"""Reading several sources at the same time: all items, each source's in order, errors and ends told."""

import threading
from collections.abc import Callable, Iterator

import pytest

from bucketline.state.store.storage.parallel import all_items, read_at_once


def source(name: str, count: int) -> Callable[[], Iterator[tuple[str, int]]]:
    return lambda: ((name, i) for i in range(count))


@pytest.mark.parametrize("readers", [1, 2, 7])
def test_every_item_comes_once_and_in_the_order_of_its_source(readers: int) -> None:
    sources = [source(str(n), n * 10) for n in range(6)]
    found = list(read_at_once(sources, readers))
    assert sorted(found) == sorted(item for s in sources for item in s())
    for n in range(6):
        assert [i for name, i in found if name == str(n)] == list(range(n * 10))
    assert list(read_at_once([], readers)) == []


def test_so_many_sources_are_open_at_once_and_no_more() -> None:
    together = threading.Barrier(3, timeout=20)

    def meeting() -> Iterator[int]:
        yield together.wait()

    assert sorted(read_at_once([meeting] * 6, 3)) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("readers", [1, 3])
def test_an_error_of_a_source_is_raised_and_leaves_no_thread(readers: int) -> None:
    def failing() -> Iterator[tuple[str, int]]:
        yield "bad", 0
        raise OSError("the storage is gone")

    before = threading.active_count()
    with pytest.raises(OSError, match="storage is gone"):
        list(read_at_once([source("a", 1000), failing, source("b", 1000)], readers))
    assert threading.active_count() <= before


def test_whoever_stops_early_leaves_no_thread() -> None:
    before = threading.active_count()
    reading = read_at_once([source(str(n), 1_000_000) for n in range(4)], 4)
    next(reading)
    reading.close()
    assert threading.active_count() <= before


@pytest.mark.parametrize("readers", [1, 3])
def test_all_items_come_in_the_order_of_their_sources(readers: int) -> None:
    sources = [source(str(n), 100 - n) for n in range(9)]
    assert all_items(sources, readers) == [item for s in sources for item in s()]
    assert all_items([], readers) == []


def test_all_items_read_so_many_sources_at_once() -> None:
    together = threading.Barrier(3, timeout=20)

    def meeting() -> Iterator[int]:
        yield together.wait()

    assert sorted(all_items([meeting] * 6, 3)) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("readers", [1, 3])
def test_an_error_among_all_items_is_raised_and_leaves_no_thread(readers: int) -> None:
    def failing() -> Iterator[tuple[str, int]]:
        yield "bad", 0
        raise OSError("the storage is gone")

    before = threading.active_count()
    with pytest.raises(OSError, match="storage is gone"):
        all_items([source("a", 1000), failing, *[source("b", 100_000)] * 9], readers)
    assert threading.active_count() <= before
