"""Which table a record goes to in a job of several tables, and what the job says of it."""

import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.resolve import read_assignments, read_settings, resolve_job, resolve_jobs
from bucketline.conf.routes.route import Names, SourceName, case_variant
from bucketline.conf.routes.route_options import OnTableFailure, Unmatched
from bucketline.conf.routes.routed_job import Left, Resolved, RoutedJob
from bucketline.conf.sources.message_options import Shards

HEAD = """
source: {format: kafka, options: {kafka.bootstrap.servers: "b:1", subscribePattern: "shop.*"}, decode: debezium-json}
checkpoint: file:/ck
"""
ROUTES = (
    HEAD
    + """
options: {compaction: inline, route-memory: 8 mb}
create: {options: {bucket: "4"}}
types: {amount: "DECIMAL(12, 2)"}
exclude: ["regex:shop\\\\.audit.{1,2}", shop.tmp]
unmatched: skip
on-table-failure: park
commit-parallelism: 3
tables:
  - source-table: "regex:shop\\\\.(orders)_\\\\d+"
    shards: distinct-keys
    table: "file:/w/ods.db/{1}"
    create: auto
  - source-table: shop.items
    table: "file:/w/ods.db/{database}_{table}"
    options: {route-memory: 16 mb}
  - {topic: "regex:shop-(.*)", table: "file:/w/ods.db/{1}", create: {partition-by: [dt]}}
"""
)


def routed(text: str) -> RoutedJob:
    job = resolve_jobs(read_settings(text, name="job.yaml"))
    assert isinstance(job, RoutedJob)
    return job


def test_the_first_route_that_matches_gets_the_record() -> None:
    job = routed(ROUTES)
    assert job.resolve(SourceName("orders_17", database="shop"), "x") == Resolved(0, "file:/w/ods.db/orders")
    assert job.resolve(SourceName("items", database="shop"), "shop-items") == Resolved(1, "file:/w/ods.db/shop_items")
    assert job.resolve(SourceName("other", database="shop"), "shop-other") == Resolved(2, "file:/w/ods.db/other")
    assert job.resolve(None, "shop-other") == Resolved(2, "file:/w/ods.db/other")
    assert job.resolve(SourceName("other", database="shop"), "elsewhere") is Left.UNMATCHED
    assert (job.unmatched, job.on_table_failure, job.commit_parallelism) == (Unmatched.SKIP, OnTableFailure.PARK, 3)


def test_what_is_excluded_is_left_out_before_any_route_is_asked() -> None:
    job = routed(ROUTES)
    assert job.resolve(SourceName("audit_1", database="shop"), "shop-audit") is Left.EXCLUDED
    assert job.resolve(SourceName("tmp", "shop", "postgres"), "shop-tmp") is Left.EXCLUDED
    assert job.resolve(SourceName("audit_100", database="shop"), "shop-a") == Resolved(2, "file:/w/ods.db/a")


def test_a_name_is_meant_with_its_schema_with_its_database_or_with_both() -> None:
    name = SourceName("orders", "public", "shop")
    assert name.texts == ("public.orders", "shop.public.orders")
    assert Names("public.orders").groups(name.texts) == ()
    assert Names("shop.public.orders").groups(name.texts) == ()
    assert Names("orders").groups(name.texts) is None
    assert Names("regex:.*\\.ord(.*)").groups(name.texts) == ("ers",)
    assert Names("regex:public\\.ord").groups(name.texts) is None
    assert SourceName("orders", database="shop").texts == ("shop.orders",)


@pytest.mark.parametrize(("compaction", "inherits"), [("Inline", False), ("none", False), ("async", True)])
def test_a_route_whose_tables_need_no_compaction_plans_does_not_inherit_their_options(
    compaction: str, inherits: bool
) -> None:
    """Such an option beside `compaction: inline` is refused, and the other routes need it."""
    job = routed(
        f"""{HEAD}
options: {{compaction: dedicated, compaction-plan.commits: 5}}
tables:
  - {{source-table: shop.a, table: "file:/w/ods.db/a"}}
  - {{source-table: shop.b, table: "file:/w/ods.db/b", options: {{compaction: {compaction}}}}}
"""
    )
    key = "options.compaction-plan.commits"
    assert key in job.settings_of(0)
    assert (key in job.settings_of(1)) is inherits


def test_defaults_and_routes_are_merged_maps_by_key_and_texts_as_a_whole() -> None:
    job = routed(ROUTES)
    auto = job.config_of(Resolved(0, "file:/w/ods.db/orders"))
    assert auto.create is not None and not auto.create.options
    assert auto.messages.shards is Shards.DISTINCT_KEYS
    items = job.config_of(Resolved(1, "file:/w/ods.db/shop_items"))
    assert items.create is not None and dict(items.create.options) == {"bucket": "4"}
    assert dict(items.options) == {"compaction": "inline", "route-memory": "16 mb"}
    topics = job.config_of(Resolved(2, "file:/w/ods.db/a"))
    assert topics.create is not None and topics.create.partition_by == ("dt",)
    assert dict(topics.create.options) == {"bucket": "4"}
    assert [name for name, _ in topics.messages.types] == ["amount"]
    assert topics.table == "file:/w/ods.db/a" and topics.messages.source_table is None
    assert topics.source == job.common.source and topics.checkpoint == "file:/ck"


def test_a_name_never_leaves_the_folder_of_its_table() -> None:
    job = routed(HEAD + 'tables: [{source-table: "regex:shop\\\\.(.*)", table: "/w/{1}"}]')
    for name in ("a/b", "..", "a.b", "", "a\\b", "a\tb"):
        with pytest.raises(OptionError, match=r"tables\[0\]"):
            job.resolve(SourceName(name, database="shop"), None)
    assert job.resolve(SourceName("a-b c", database="shop"), None) == Resolved(0, "/w/a-b c")


def test_a_part_of_the_name_that_a_record_does_not_have_is_an_error() -> None:
    job = routed(HEAD + 'tables: [{source-table: "regex:.*", table: "/w/{schema}_{table}"}]')
    assert job.resolve(SourceName("t", "s", "d"), None) == Resolved(0, "/w/s_t")
    with pytest.raises(OptionError, match=r"no value for \{schema\}"):
        job.resolve(SourceName("t", database="d"), None)


def test_a_group_without_part_in_the_match_is_an_error() -> None:
    job = routed(HEAD + 'tables: [{source-table: "regex:(a)?b", table: "/w/{1}"}]')
    with pytest.raises(OptionError, match=r"no value for \{1\}"):
        job.resolve(SourceName("b"), None)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("tables: [{source-table: a.b}]", "needs 'table'"),
        ("tables: [{table: /w/a}]", "needs either source-table or topic"),
        ("tables: [{table: /w/a, topic: t, source-table: a.b}]", "needs either"),
        ("tables: [{table: /w/a, source-tabel: a.b}]", "did you mean 'source-table'"),
        ("tables: [{table: /w/a, source-table: a.b, checkpoint: x}]", "unknown key 'checkpoint' in tables.0."),
        (
            "tables: [{table: /w/a, source-table: a.b, options: {metrics.json.file: x}}]",
            "'options.metrics.json.file' in tables.0. of .* is the same for all tables of a job: write it at the top",
        ),
        ("tables: [{table: /w/a, source-table: a.b, options: {rout-memory: 1}}]", "did you mean 'route-memory'"),
        ("tables: [{table: '/w/{2}', source-table: 'regex:(a)'}]", "unknown placeholder {2}; known are"),
        ("tables: [{table: '/w/{tabel}', source-table: a.b}]", "did you mean 'table'"),
        ("tables: [{table: '/w/{table', source-table: a.b}]", "without a closing brace"),
        ("tables: [{table: /w/a, source-table: 'regex:('}]", "pattern is no valid regular expression"),
        ("tables: [{table: /w/a, source-table: a.b}]\ntable: /w/x", "cannot have 'table' at the top"),
        ("tables: [{table: /w/a, source-table: a.b}]\nsource-table: a.b", "cannot have 'source-table' at the top"),
        ("tables: [{table: /w/a, source-table: a.b}]\ncommit-parallelism: 0", "from 1 to 256"),
        ("tables: {a: {table: /w/a, source-table: a.b}}", "list of routes"),
        ("tables: /w/a", "list of routes"),
        ("tables: [/w/a]", "list of routes"),
        ("table: /w/a\nunmatched: skip", "jobs with 'tables'"),
        ("table: /w/a\nexclude: [a.b]", "jobs with 'tables'"),
        (
            "tables: [{table: /w/a, source-table: a.b}, {table: /w/a, source-table: a.c, truncate: skip}]",
            "both go to '/w/a'",
        ),
    ],
)
def test_routes_that_make_no_sense_are_refused(more: str, message: str) -> None:
    with pytest.raises(OptionError, match=message.replace("{", r"\{").replace("(", r"\(")):
        resolve_jobs(read_settings(HEAD + more, name="job.yaml"))


def test_routes_to_one_table_that_say_the_same_are_one_table() -> None:
    text = "tables: [{table: /w/a, source-table: a.b}, {table: /w/a, source-table: a.c}]"
    job = routed(HEAD + text)
    assert job.differing(0, 1) is None


def test_lists_cannot_be_addressed_on_the_command_line_nor_in_properties() -> None:
    with pytest.raises(OptionError, match="command line cannot address"):
        resolve_jobs(read_settings(ROUTES, name="job.yaml"), read_assignments(["tables.0.table=/w/b"]))
    with pytest.raises(OptionError, match="cannot address"):
        resolve_jobs(read_settings("tables.0.table=/w/b\n", name="job.properties"))
    changed = resolve_jobs(read_settings(ROUTES, name="job.yaml"), read_assignments(["unmatched=fail"]))
    assert isinstance(changed, RoutedJob) and changed.unmatched is Unmatched.FAIL


def test_messages_that_name_no_table_are_told_apart_by_topic_alone() -> None:
    plain = HEAD.replace("debezium-json", "json")
    with pytest.raises(OptionError, match="needs "):
        resolve_jobs(read_settings(plain + "tables: [{table: /w/a, source-table: a.b}]", name="job.yaml"))
    with pytest.raises(OptionError, match="needs "):
        resolve_jobs(read_settings(plain + "tables: [{table: '/w/{table}', topic: a}]", name="job.yaml"))
    job = routed(plain + "tables: [{table: '/w/{1}', topic: 'regex:shop-(.*)'}]")
    assert not job.asks_names
    assert job.resolve(None, "shop-a") == Resolved(0, "/w/a")


def test_a_topic_is_one_of_kafka() -> None:
    files = HEAD.replace("format: kafka", "format: text")
    with pytest.raises(OptionError, match=r"source\.format is text"):
        resolve_jobs(read_settings(files + "tables: [{table: /w/a, topic: a}]", name="job.yaml"))


def test_a_job_of_several_tables_is_none_of_one() -> None:
    with pytest.raises(OptionError, match="several tables"):
        resolve_job(read_settings(ROUTES, name="job.yaml"))


def test_names_that_differ_in_case_alone_are_found() -> None:
    assert case_variant({"/w/a", "/w/b"}, "/w/A") == "/w/a"
    assert case_variant({"/w/a"}, "/w/a") is None
