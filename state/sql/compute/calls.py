"""A call of a function in a SQL expression, and what a function says of its arguments."""

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

    `zone` is the session's; `has_instants` says whether TIMESTAMP is an instant, as in Spark, or a local time, as in
    Paimon; `now_us` is `current_timestamp` in microseconds since 1970; if it is None, `current_timestamp` is refused.
    `json_columns` hold JSON as texts, whose fields are texts.
    """

    zone: str = "UTC"
    has_instants: bool = False
    now_us: int | None = None
    json_columns: frozenset[str] = frozenset()


LOCAL_CONTEXT = Context()
"""The context of tables: local times, in UTC."""


class Evaluate(Protocol):
    """Computes the value of a node."""

    @property
    def context(self) -> Context: ...

    def __call__(self, node: Any) -> Value: ...


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function's name in small letters, the nodes of its arguments, and the node of the call."""

    name: str
    arguments: tuple[Any, ...]
    node: Any

    @property
    def text(self) -> str:
        """Returns the call as SQL, for messages."""
        return str(self.node.sql(DIALECT))


@dataclass(frozen=True, slots=True)
class Function:
    """A function of `least` to `most` arguments. `compute` gives the result of a call."""

    least: int
    most: int
    compute: Callable[[FunctionCall, Evaluate], Value]

    @property
    def takes(self) -> str:
        """Returns in words how many arguments the function takes."""
        count = str(self.least) if self.least == self.most else f"{self.least} to {self.most}"
        return f"{count} argument{'' if self.most == 1 else 's'}"


def literal(node: Any, kind: type[Any]) -> Any:
    """Returns the literal, a text or a whole number, as it stands. Raises OptionError for anything else."""
    sign = 1
    if isinstance(node, exp.Neg) and kind is int:
        sign, node = -1, node.this
    if not isinstance(node, exp.Literal) or node.is_string is not (kind is str):
        raise OptionError(f"{node.sql(DIALECT)!r} has to be a literal here", key="expression")
    try:
        return sign * whole_number(node.this) if kind is int else str(node.this)
    except ValueError as e:
        raise OptionError(f"{node.sql(DIALECT)!r} has to be a whole number here", key="expression") from e
