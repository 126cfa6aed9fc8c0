"""The board for Grafana and the alert rules ask for metrics that exist, by labels that they have."""

import json
import re
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import yaml

import bucketline
from bucketline.streaming.batch.batch_metrics import PARKED, PARKED_UNTIL, measure_parked
from bucketline.streaming.metrics.registry import Metric, Registry

FOLDER = Path(__file__).parents[4] / "docs" / "monitoring"
NAME = re.compile(r"\bbucketline_[a-z0-9_]+")
LABELS = re.compile(r"\$labels\.(\w+)|\{\{(\w+)\}\}")
KNOWN_LABELS = {"table", "writer", "expectation", "name", "kind", "runs", "outcome", "topic", "partition"}


def metrics() -> set[str]:
    """The names of all metrics of the product, as they are shown."""
    found: set[str] = set()
    for module in walk_packages(bucketline.__path__, "bucketline."):
        if ".streaming." in module.name and not module.ispkg and "metric" in (Path(_file(module.name)).read_text()):
            for value in vars(import_module(module.name)).values():
                of = value if isinstance(value, tuple) else (value,)
                parts = [part for one in of for part in (one if isinstance(one, tuple) else (one,))]
                found |= {part.shown_name for part in parts if isinstance(part, Metric)}
    return found


def _file(name: str) -> str:
    return f"{Path(bucketline.__file__).parent}/{name.removeprefix('bucketline.').replace('.', '/')}.py"


def test_the_board_and_the_alerts_ask_for_metrics_that_exist() -> None:
    board = json.loads((FOLDER / "grafana.json").read_text(encoding="utf-8"))
    rules = yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked += [variable["query"] for variable in board["templating"]["list"] if variable["type"] == "query"]
    asked += [rule["expr"] for rule in rules]
    names = {name for text in asked for name in NAME.findall(text)}
    assert len(names) > 10 and names <= metrics()
    for text in (*(t["legendFormat"] for p in board["panels"] for t in p["targets"]), json.dumps(rules)):
        assert {a or b for a, b in LABELS.findall(text)} <= KNOWN_LABELS


def test_each_alert_says_what_to_do() -> None:
    rules = yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    assert {"BucketlineTableParked", "BucketlineBadRecords", "BucketlineBehind", "BucketlineNoCommit"} <= {
        rule["alert"] for rule in rules
    }
    assert all(rule["annotations"]["summary"] and rule["annotations"]["remedy"] for rule in rules)


def test_a_table_that_is_unparked_is_gone_from_the_metric() -> None:
    registry = Registry()
    measure_parked({"a": None, "b": 1500}, "q", registry)
    measure_parked({"b": 2500}, "q", registry)
    measure_parked({"c": None, "d": -1}, "other", registry)
    [(parked, values), (until, times)] = list(registry.samples())
    assert (parked, until) == (PARKED, PARKED_UNTIL)
    assert {dict(labels)["table"] for labels in values} == {"b", "c", "d"} and set(values.values()) == {1.0}
    assert {dict(labels)["table"]: seconds for labels, seconds in times.items()} == {"b": 2.5}
