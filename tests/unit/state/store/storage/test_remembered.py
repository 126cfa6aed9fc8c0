"""Files in memory: within the budget, the ones used last."""

from bucketline.state.store.storage.remembered import Remembered
from tests.support.s3_server import S3Server


def test_what_was_used_longest_ago_goes_when_the_budget_is_full() -> None:
    files = Remembered(10)
    for name in ("a", "b", "c"):
        files.put(name, name.encode() * 3)
    assert files.get("a") == b"aaa"
    files.put("d", b"dddd")
    assert [files.get(n) for n in ("a", "b", "c", "d")] == [b"aaa", None, b"ccc", b"dddd"]
    files.put("d", b"")
    files.put("e", b"eeee")
    assert [files.get(n) for n in ("a", "c", "d", "e")] == [b"aaa", b"ccc", b"", b"eeee"]


def test_a_file_larger_than_the_budget_is_not_remembered_and_a_forgotten_one_is_gone() -> None:
    files = Remembered(10)
    files.put("a", b"a")
    files.put("large", b"x" * 11)
    files.forget("a")
    files.forget("none")
    assert files.get("a") is files.get("large") is None


def test_a_file_that_never_changes_is_fetched_once_and_not_again_after_this_process_removed_it(
    s3_server: S3Server,
) -> None:
    io, root = s3_server.new_folder()
    io.overwrite(f"{root}/f", b"1")
    before = io.requests
    assert io.read_unchanging(f"{root}/f") == io.read_unchanging(f"{root}/f") == b"1"
    assert io.requests.since(before).get == 1
    io.write_new(f"{root}/g", b"2")
    assert io.read_unchanging(f"{root}/g") == b"2" and io.requests.since(before).get == 1
    io.overwrite(f"{root}/g", b"3")
    assert io.read_unchanging(f"{root}/g") == b"3"
    io.delete(f"{root}/f")
    assert io.read_optional(f"{root}/f") is None
