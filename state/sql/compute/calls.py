"""Calls of functions in SQL expressions, and the interface of functions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from sqlglot import exp

from bucketline.conf.errors import OptionError
from bucketline.conf.option import whole_number
from bucketline.state.sql.compute.numbers import Value
from bucketline.state.sql.dialect import DIALECT


@dataclass(frozen=True, slots=True)
class Context:
    """The settings that decide what an expression means.

    `zone` is the time zone of the session. If `has_instants` is true, TIMESTAMP is an instant, as in Spark; otherwise
    it is a local time, as in Paimon. `now_us` is the value of `current_timestamp` in microseconds since 1970; if it is
    None, `current_timestamp` is refused. `json_columns` are columns with JSON text; expressions can read fields in
    them, as strings.
    """

    zone: str = "UTC"
    has_instants: bool = False
    now_us: int | None = None
    json_columns: frozenset[str] = frozenset()


LOCAL_CONTEXT = Context()
"""The context for expressions on tables: TIMESTAMP is a local time, and the time zone is UTC."""


class Evaluate(Protocol):
    """An interface for computing the value of a node in the tree of an expression."""

    @property
    def context(self) -> Context: ...

    def __call__(self, node: Any) -> Value: ...


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call of a function: the name in lower case, the nodes of the arguments, and the node of the call."""

    name: str
    arguments: tuple[Any, ...]
    node: Any

    @property
    def text(self) -> str:
        """Returns the call as SQL, for messages."""
        return str(self.node.sql(DIALECT))


@dataclass(frozen=True, slots=True)
class Function:
    """A function with `least` to `most` arguments. `compute` returns the result of a call."""

    least: int
    most: int
    compute: Callable[[FunctionCall, Evaluate], Value]

    @property
    def takes(self) -> str:
        """Returns a phrase that says how many arguments the function takes, for error messages."""
        count = str(self.least) if self.least == self.most else f"{self.least} to {self.most}"
        return f"{count} argument{'' if self.most == 1 else 's'}"


def literal(node: Any, kind: type[Any]) -> Any:
    """Returns the value of a node that must be a literal: a string or an integer, as `kind` says. Raises OptionError
    for any other node.
    """
    sign = 1
    if isinstance(node, exp.Neg) and kind is int:
        sign, node = -1, node.this
    if not isinstance(node, exp.Literal) or node.is_string is not (kind is str):
        raise OptionError(f"{node.sql(DIALECT)!r} must be a literal here", key="expression")
    try:
        return sign * whole_number(node.this) if kind is int else str(node.this)
    except ValueError as e:
        raise OptionError(f"{node.sql(DIALECT)!r} must be a whole number here", key="expression") from e
