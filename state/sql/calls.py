"""Parses `CALL sys.procedure(...)` with positional or named arguments, in the spelling of Flink or Spark."""

from collections.abc import Iterator, Mapping

from bucketline.state.sql.dialect import refused
from bucketline.state.sql.merges import read_merge
from bucketline.state.sql.procedures import MERGE_INTO, bind_call
from bucketline.state.sql.statement import Call, Merge
from bucketline.state.sql.words import Words


def read_call(words: Words) -> Call | Merge:
    """Parses a call, and returns it with its arguments as strings. Raises OptionError for an argument that is no
    literal.
    """
    words.expect("CALL")
    words.verb = "CALL"
    path = words.path("the name of a procedure")
    if [name.lower() for name in path[-2:-1]] != ["sys"] or len(path) > 3:
        raise refused(
            f"CALL {'.'.join(path)}: all procedures are in sys, as in CALL sys.compact(...)", statement="CALL"
        )
    words.verb = f"CALL sys.{path[-1]}"
    words.expect("(")
    positional: list[str | None] = []
    named: dict[str, str | None] = {}
    while not words.take(")"):
        if positional or named:
            words.expect_comma()
        if words.comes_name() and words.peek(1) == "=>":
            name = words.name("an argument").lower()
            words.at += 1
            if name in named:
                raise refused(f"{words.verb}: argument {name} is given twice", statement=words.verb)
            named[name] = words.literal()
        else:
            positional.append(words.literal())
    words.end()
    if positional and named:
        raise refused(
            f"{words.verb}: named and positional arguments cannot be mixed; name all arguments", statement=words.verb
        )
    catalog = path[0] if len(path) == 3 else None
    call = Call(path[-1].lower(), tuple(positional), named, catalog)
    return _merge(call) if call.procedure == MERGE_INTO else call


def _merge(call: Call) -> Merge:
    """Converts a call of Flink's procedure `merge_into` to a MERGE statement. Source: Paimon 2.0 MergeIntoProcedure,
    MergeIntoAction.
    """
    arguments = bind_call(call)
    if "source_sqls" in arguments:
        raise refused(
            "CALL sys.merge_into: source_sqls is not supported; use MERGE INTO ... USING (SELECT ...)",
            argument="source_sqls",
        )
    for name in ("source_table", "merge_condition"):
        if name not in arguments:
            raise refused(f"CALL sys.merge_into: argument '{name}' is missing", argument=name)
    target = f"{call.catalog}.{arguments['target_table']}" if call.catalog else arguments["target_table"]
    alias = f" AS {arguments['target_alias']}" if "target_alias" in arguments else ""
    on = f"USING {arguments['source_table']} ON ({arguments['merge_condition']})"
    return read_merge(f"MERGE INTO {target}{alias} {on} {' '.join(_whens(arguments))}")


def _whens(arguments: Mapping[str, str]) -> Iterator[str]:
    for kind, key in (("MATCHED", "matched"), ("NOT MATCHED BY SOURCE", "not_matched_by_source")):
        delete_if, update_if, setting = (
            arguments.get(f"{key}_{name}") for name in ("delete_condition", "upsert_condition", "upsert_setting")
        )
        if delete_if is not None:
            yield f"WHEN {kind} AND ({delete_if}) THEN DELETE"
        if update_if is not None and setting is None:
            raise refused(f"CALL sys.merge_into: argument '{key}_upsert_setting' is missing", argument=key)
        if setting is not None:
            yield f"WHEN {kind}{'' if update_if is None else f' AND ({update_if})'} THEN UPDATE SET {setting}"
    insert_if, values = arguments.get("not_matched_insert_condition"), arguments.get("not_matched_insert_values")
    if insert_if is not None and values is None:
        raise refused("CALL sys.merge_into: argument 'not_matched_insert_values' is missing", argument="values")
    if values is not None:
        insert = "INSERT *" if values.strip() == "*" else f"INSERT VALUES ({values})"
        yield f"WHEN NOT MATCHED{'' if insert_if is None else f' AND ({insert_if})'} THEN {insert}"
