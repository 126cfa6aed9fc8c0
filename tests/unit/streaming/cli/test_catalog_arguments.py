"""Commands and jobs that name a table by its name in a catalog."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import bucketline as bl
from bucketline.conf.errors import OptionError
from bucketline.conf.resolve import load_job
from bucketline.streaming.cli.commands import program
from bucketline.streaming.job.check import check_job
from bucketline.streaming.job.job_table import has_table, open_or_create
from tests.support.servers.rest_server import RestServer

JOB = """
catalog: {{warehouse: {root}/w, table-default.bucket: "3"}}
table: {name}
source: {{format: rate}}
checkpoint: {root}/checkpoint
create: {{schema: "timestamp TIMESTAMP, value BIGINT", primary-key: [value]}}
"""


def bucketline(*arguments: str, code: int = 0) -> Result:
    found = CliRunner().invoke(program, arguments)
    assert found.exit_code == code, (found.output, found.stderr)
    return found


@pytest.fixture
def warehouse(tmp_path: Path) -> str:
    root = str(tmp_path / "w")
    bl.catalog(root).create_database("shop")
    arguments = ["--schema", "id INT", "--primary-key", "id", "-o", "bucket=1", "--warehouse", root]
    assert bucketline("create", "--table", "shop.orders", *arguments).stdout == f"{root}/shop.db/orders\n"
    bl.open_table(f"{root}/shop.db/orders").write(pa.table({"id": pa.array([1, 2], pa.int32())}))
    return root


def test_every_command_with_a_path_takes_a_name_in_a_warehouse(warehouse: str) -> None:
    rows = bucketline("scan", "shop.orders", "--warehouse", warehouse, "--format", "json").stdout.splitlines()
    assert sorted(json.loads(row)["id"] for row in rows) == [1, 2]
    taking = [n for n, c in program.all_commands().items() if any(p.name in ("path", "paths") for p in c.params)]
    assert {"scan", "snapshots", "compact", "doctor", "plan", "compactor", "create"} <= set(taking)
    for name in taking:
        options = {o for parameter in program.all_commands()[name].params for o in parameter.opts}
        assert {"--warehouse", "--catalog", "--catalog-file", "--storage"} <= options, name
    assert bucketline("snapshots", "shop.orders", "--catalog", f"warehouse={warehouse}").stdout.count("APPEND") == 1
    bucketline("compact", "shop.orders", "--warehouse", warehouse)
    bucketline("doctor", "shop.orders", "--warehouse", warehouse)
    bucketline("plan", "shop.orders", "--warehouse", warehouse)
    bucketline("compactor", "shop.orders", "--once", "--warehouse", warehouse)


def test_a_file_names_the_catalog_and_the_command_line_overrides_it(warehouse: str, tmp_path: Path) -> None:
    settings = tmp_path / "catalog.yaml"
    settings.write_text("warehouse: /nowhere\n")
    given = ("--catalog-file", str(settings), "--warehouse", warehouse)
    assert bucketline("schema", "shop.orders", *given).stdout.count("INT") == 1


def test_a_branch_of_a_name_is_examined_as_that_branch(warehouse: str) -> None:
    bl.catalog(warehouse).table("shop.orders").create_branch("b1")
    bucketline("doctor", "shop.orders$branch_b1", "--warehouse", warehouse)
    missing = bucketline("doctor", "shop.orders$branch_b2", "--warehouse", warehouse, code=3)
    assert "has no branch 'b2'" in missing.stderr


def test_what_is_not_there_has_an_exit_code_and_a_remedy(warehouse: str) -> None:
    missing = bucketline("scan", "shop.order", "--warehouse", warehouse, code=3)
    assert "error [TABLE_NOT_FOUND]" in missing.stderr and "remedy: " in missing.stderr
    missing = bucketline("scan", "store.orders", "--warehouse", warehouse, code=3)
    assert "error [DATABASE_NOT_FOUND]" in missing.stderr and "remedy: " in missing.stderr


def test_a_job_creates_and_opens_its_table_by_name(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(JOB.format(root=tmp_path, name="orders"))
    config = load_job(str(path))
    assert check_job(config).options["bucket"] == "3" and not has_table(config)
    made = open_or_create(config)
    assert made.uri == f"{tmp_path}/w/default.db/orders" and made.options["bucket"] == "3"
    assert has_table(config) and open_or_create(config).uri == made.uri
    found = bucketline("ingest", "--conf-file", str(path), "--print-config", "--format", "json")
    rows = {row["key"]: row["value"] for row in map(json.loads, found.stdout.splitlines())}
    assert rows["catalog.warehouse"] == f"{tmp_path}/w"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("table=orders$branch_b1", "contains a branch"),
        ("table=a/b", "not a valid|cannot hold"),
        ("create.options.metastore.partitioned-table=true", "was not opened through a REST catalog"),
        ("catalog.warehouze=x", "did you mean 'warehouse'"),
        ("catlog.warehouse=x", "did you mean 'catalog.warehouse'"),
    ],
)
def test_a_job_with_a_wrong_name_or_catalog_is_refused(tmp_path: Path, setting: str, message: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(JOB.format(root=tmp_path, name="orders"))
    with pytest.raises(OptionError, match=message):
        check_job(load_job(str(path), [setting]))
    assert not (tmp_path / "w").exists()


def test_commands_and_jobs_reach_a_rest_catalog_and_show_no_token(tmp_path: Path) -> None:
    with RestServer(tmp_path / "lake", defaults={"table-default.bucket": "2"}) as server:
        settings = tmp_path / "catalog.yaml"
        settings.write_text("".join(f"{key}: '{text}'\n" for key, text in server.options.items()))
        given = ("--catalog-file", str(settings))
        bucketline("create", "--table", "orders", "--schema", "id INT", "--primary-key", "id", *given)
        bl.catalog(server.options).table("orders").write(pa.table({"id": pa.array([1], pa.int32())}))
        assert json.loads(bucketline("scan", "orders", "--format", "json", *given).stdout) == {"id": 1}
        assert bucketline("compact", "orders", *given).stdout == "snapshot 2\n"
        bucketline("doctor", "orders", *given)
        wrong = bucketline("scan", "orders", *given, "--catalog", "token=hush-hush", code=1)
        assert "401" in wrong.stderr and "hush" not in wrong.stderr
        job = tmp_path / "job.yaml"
        text = JOB.format(root=tmp_path, name="events").splitlines()
        job.write_text("\n".join(["catalog:", *(f"  {k}: '{v}'" for k, v in server.options.items()), *text[2:]]))
        config = load_job(str(job))
        assert check_job(config).options["bucket"] == "2" and not has_table(config)
        made = open_or_create(config)
        assert made.uri.startswith("file:") and made.options["bucket"] == "2" and has_table(config)
        shown = bucketline("ingest", "--conf-file", str(job), "--print-config").stdout
        assert server.uri in shown and server.options["token"] not in shown + repr(config)
