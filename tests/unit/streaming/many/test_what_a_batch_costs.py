"""What a batch of many tables asks of storage: requests for the tables with records, and a few for the job."""

from pathlib import Path

from tests.support.spark.many_shop import Shop
from tests.support.spark.tasks import killed_at
from tests.support.storage.request_chain import request_chain

TEXT = """
create: {schema: "id BIGINT NOT NULL, v STRING", primary-key: [id], options: {bucket: "1"}}
options: {write-only: "true"}
tables: [{source-table: "regex:shop\\\\..*", table: "ROOT/w/{table}"}]
"""
KNOWN = 6
OF_A_TABLE, OF_THE_JOB = 17, 3
"""The most requests of a batch for each table with records; and those for the job: the pin, the ledger, and what it is
asked to do."""
CHAIN = 15
"""The most requests for a table of which each waits for the one before it."""
TABLES, AT_ONCE, LATENCY_S, LIMIT_S = 200, 32, 0.03, 8
"""The tables of a batch, the commits at a time, the time of a request, and the time that a batch may wait for them."""


def requests(job: Shop, tables: int) -> int:
    """The requests of a batch with records for so many of the tables."""
    for number in range(tables):
        job.topic.change(f"t{number}", {"id": 1, "v": "a"})
    with killed_at(None) as counted:
        job.batch()
    return counted.calls


def test_requests_grow_with_the_tables_that_have_records_and_not_with_those_that_are_known(tmp_path: Path) -> None:
    job = Shop(tmp_path, TEXT)
    requests(job, KNOWN)
    requests(job, KNOWN)
    one, three = requests(job, 1), requests(job, 3)
    each = (three - one) // 2
    assert three == one + 2 * each and 0 < each <= OF_A_TABLE
    assert one - each <= OF_THE_JOB


def test_requests_of_a_table_that_wait_for_each_other_are_few(tmp_path: Path) -> None:
    job = Shop(tmp_path, TEXT)
    requests(job, 1)
    requests(job, 1)
    chains = []
    for _ in range(3):  # a busy machine may send one after the other what it can send at the same time
        job.topic.change("t0", {"id": 1, "v": "a"})
        with request_chain() as chain:
            job.batch()
        chains.append(chain.names)
    shortest = min(chains, key=len)
    assert len(shortest) <= CHAIN + OF_THE_JOB, "\n".join(shortest)
    assert LATENCY_S * CHAIN * TABLES / AT_ONCE <= LIMIT_S
