"""The doctor without waits in real time: what would have happened meanwhile, happens at each wait."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from bucketline.state.determinism import World
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.doctor import examine as doctor
from bucketline.state.store.doctor.finding import Finding


@dataclass
class Waits:
    """A pause that does something instead of waiting, once for each wait, and then nothing more."""

    events: list[Callable[[], object]] = field(default_factory=list)
    count: int = 0

    def wait_ms(self, duration_ms: int) -> None:
        self.count += 1
        if self.events:
            self.events.pop(0)()


def examine(table: TableHandle, *, rows: bool = False) -> list[Finding]:
    """The findings in a table that nobody changes."""
    return doctor.examine(replace(table, world=World(pause=Waits())), rows=rows)
