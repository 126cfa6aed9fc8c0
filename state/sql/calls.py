"""`CALL sys.procedure(...)`: positional or named arguments, in Flink's spelling or Spark's."""

from bucketline.state.sql.dialect import refused
from bucketline.state.sql.statement import Call
from bucketline.state.sql.words import Words


def read_call(words: Words) -> Call:
    """The call, with its arguments as texts. Raises OptionError for arguments that are no literals."""
    words.expect("CALL")
    words.verb = "CALL"
    path = words.path("the name of a procedure")
    if [name.lower() for name in path[-2:-1]] != ["sys"]:
        raise refused(f"CALL {'.'.join(path)}: procedures are in sys, as CALL sys.compact(...)", statement="CALL")
    words.verb = f"CALL sys.{path[-1]}"
    words.expect("(")
    positional: list[str | None] = []
    named: dict[str, str | None] = {}
    while not words.take(")"):
        if positional or named:
            words.expect(",")
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
        raise refused(f"{words.verb}: named and positional arguments cannot be mixed", statement=words.verb)
    return Call(path[-1].lower(), tuple(positional), named)
