"""Files in memory: within the budget, the ones used last."""

from bucketline.state.store.storage.file_io import file_io_for
from bucketline.state.store.storage.objects.object_io import requests_sent
from bucketline.state.store.storage.remembered import BUDGET_BYTES, FILES_OF_PROCESS, Remembered
from tests.support.servers.s3_server import S3Server


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


def test_a_process_has_one_budget_however_often_a_catalog_lends_it_other_keys(s3_server: S3Server) -> None:
    """And what was read with some keys is read again with others: they may be somebody else's."""
    io, root = s3_server.new_folder()
    path = f"{root}/manifest"
    io.write_new(path, b"x" * (3 << 20))
    for number in range(BUDGET_BYTES // (3 << 20) + 3):
        renewed, _ = file_io_for(f"s3://{root}", {**s3_server.storage, "s3.secret-key": f"lent-{number}"})
        before = requests_sent(renewed)
        assert len(renewed.read_unchanging(path)) == len(renewed.read_unchanging(path)) == 3 << 20
        assert requests_sent(renewed).since(before).get == 1
        assert FILES_OF_PROCESS.used_bytes <= BUDGET_BYTES
    assert FILES_OF_PROCESS.used_bytes > BUDGET_BYTES - (4 << 20)
