"""A table on HDFS with Kerberos: by a keytab, and by tickets that are there."""

import json

import pytest

from tests.support.servers.kerberos import KerberosHdfs

pytestmark = pytest.mark.stores

ROWS = [{"id": 1, "v": "a"}, {"id": 2, "v": "c"}]


@pytest.mark.parametrize("protection", ["authentication", "privacy"])
def test_a_table_on_hdfs_with_kerberos_is_written_and_read(protection: str) -> None:
    with KerberosHdfs(protection) as hdfs:
        uri = f"{hdfs.uri}/alice/t"

        def run(tickets: str, command: str, storage: dict[str, str], **environment: str) -> object:
            done = hdfs.run(
                tickets, "tests.support.processes.kerberos_client", uri, command, json.dumps(storage), **environment
            )
            assert done.stdout, done.stderr
            return json.loads(done.stdout.splitlines()[-1])

        none = run("none", "read", hdfs.storage)
        assert isinstance(none, dict) and none["retryable"] is False
        assert "No Kerberos credentials available" in none["error"] and "log in by `kinit`, or set" in none["error"]
        assert run("none", "write", {**hdfs.storage, **hdfs.login}) == ROWS
        # The C library of Kerberos fills the cache from a keytab that the environment names, as `kinit` would.
        assert run("alice", "read", hdfs.storage, KRB5_CLIENT_KTNAME=f"FILE:{hdfs.keytab}") == ROWS
        assert run("alice", "read", hdfs.storage) == ROWS
        other = {**hdfs.login, "security.kerberos.login.principal": hdfs.principal.replace("alice", "bob")}
        refused = run("none", "read", {**hdfs.storage, **other})
        assert isinstance(refused, dict) and "redentials" in refused["error"]
