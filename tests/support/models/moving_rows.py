"""Rows of a database that move between partitions of a table, whose key is computed from a time that changes."""

import random
from typing import Any

DAY_MS = 86_400_000
SELECT = "*, date_format(updated, 'yyyy-MM-dd') AS dt"


class MovingRows:
    """A database whose rows change, and the events of its changes."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.rows: dict[int, dict[str, Any]] = {}

    def change(self) -> dict[str, Any]:
        key = self.draw.randrange(6)
        before = self.rows.pop(key, None)
        if before is not None and self.draw.random() < 0.25:
            return {"op": "d", "before": before, "after": None}
        after = {"id": key, "v": self.draw.randrange(100), "updated": self.draw.randrange(4) * DAY_MS}
        self.rows[key] = after
        return {"op": "c" if before is None else "u", "before": before, "after": after}

    def table(self) -> dict[int, tuple[int, str]]:
        return {k: (r["v"], f"1970-01-0{r['updated'] // DAY_MS + 1}") for k, r in self.rows.items()}
