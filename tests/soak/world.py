"""What a soak is made of: servers, faults of the store, two jobs with their sources, and two compactors."""

import json
import os
import random
import signal
import time
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from bucketline.conf.errors import BucketlineError
from bucketline.state.store.plans.make_plan import KEPT_PLANS
from bucketline.state.store.plans.plan_files import PlanFolder
from bucketline.state.store.table.table import handle_of, open_table
from tests.soak.avro_shop import TABLES, AvroShop
from tests.soak.programs import Program, compactor, job, wait_until
from tests.support.servers.broker import KafkaBroker
from tests.support.servers.fault_proxy import FaultProxy, Trouble
from tests.support.servers.s3_server import BUCKET, storage_of
from tests.support.servers.schema_registry import SchemaRegistry, schema_registry
from tests.support.servers.versitygw import VersityGateway
from tests.support.spark.jvm import start_quickly
from tests.support.spark.shop_day import ShopDay

FAULTS = 0.005
"""The share of requests to the store that meet a fault."""
_TROUBLES = (
    Trouble.ANSWER_LOST,
    Trouble.REQUEST_LOST,
    Trouble.BROKEN_AFTER,
    Trouble.BROKEN_BEFORE,
    Trouble.BUSY,
    Trouble.LATE,
)
_AWAY_SECONDS = 4.0
_FIRST_BATCH_SECONDS = 400
_EXPIRY = {
    "snapshot.num-retained.min": "3",
    "snapshot.num-retained.max": "12",
    "snapshot.time-retained": "20 s",
    "num-sorted-run.compaction-trigger": "3",
}
MOST_PLANS = KEPT_PLANS + 2
"""The most compaction plans of a table: closed ones that are kept, an open one, and one that was just closed."""
ORPHANS_A_DEATH = 80
"""The most files that nothing names after a death of a process; a fault may leave one, too."""


class Soak:
    """A world below `root`, replayed as far as processes of this machine can be by its seed."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root, self.seed = root, seed
        self._faults = random.Random(seed)
        self.deaths = 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        start_quickly()
        stack, reader = self._stack, ("native", "spark")[self.seed % 2]
        try:
            self.broker = stack.enter_context(KafkaBroker())
            self._registry_life = stack.enter_context(ExitStack())
            self.registry: SchemaRegistry = self._registry_life.enter_context(schema_registry())
            self.store = stack.enter_context(VersityGateway())
            self.proxy = stack.enter_context(FaultProxy(self.store.endpoint, self._fault))
            self.day = ShopDay(
                self.broker, self.root, "shop", self.seed, warehouse=f"s3://{BUCKET}/json", storage=self.through_proxy
            )
            self.avro = AvroShop(self.broker, self.registry, "avro", random.Random(self.seed))
            files = {
                "json": self._json_job(reader),
                "avro": self._avro_job("spark" if reader == "native" else "native"),
            }
            self.jobs = {name: job(name, file, self.root) for name, file in files.items()}
            storage = self.root / "storage.json"
            storage.write_text(json.dumps(self.through_proxy))
            tables = [self.day.place(table) for table in self.day.rows]
            names = ("compactor-a", "compactor-b")
            self.compactors = {name: compactor(name, tables, storage, self.root) for name in names}
        except BaseException:
            stack.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for program in self.programs():
            program.kill()
        self._stack.close()

    @property
    def through_proxy(self) -> dict[str, str]:
        """The storage options of jobs and compactors, whose requests meet faults."""
        return storage_of(self.proxy.endpoint)

    def programs(self) -> list[Program]:
        """All jobs and compactors."""
        return [*self.jobs.values(), *self.compactors.values()]

    def begin(self) -> None:
        """Starts the jobs, and the compactors once the tables are there."""
        self.produce(400)
        for program in self.jobs.values():
            program.start()
        for name in self.jobs:
            wait_until(lambda name=name: self._has_batch(name), f"batch 0 of {name}", _FIRST_BATCH_SECONDS)  # type: ignore[misc]
        for program in self.compactors.values():
            program.start()

    def produce(self, events: int) -> None:
        """Writes changes to the topics of both shops."""
        self.day.produce(events)
        self.avro.produce(events // 4)

    def change_schema(self) -> None:
        """Adds a column to the records in Avro, and at the first time to a table of the shop whose records are JSON."""
        self.avro.version += 1
        self.day.produce(10, grows=True)

    def expire(self) -> None:
        """Expires snapshots as a scheduler does, of a table whose writer leaves expiry to others."""
        with suppress(BucketlineError):  # a fault of the store is met here, too; the next call does it
            table = open_table(self.day.place("carts"), storage_options=self.through_proxy)
            table.expire_snapshots(retain_max=12, retain_min=3, older_than=timedelta(seconds=20))

    def restart(self, number: int) -> str:
        """Stops one of the parts that are stopped in turn, starts it again, and says which."""
        turns = (
            self._kill_compactor,
            self._end_avro_job,
            self._take_registry_away,
            self._kill_avro_job,
            self._freeze_broker,
            self._end_compactor,
        )
        turn = turns[number % len(turns)]
        turn()
        return turn.__name__.strip("_").replace("_", " ")

    def _kill_compactor(self) -> None:
        self.deaths += 1
        self.compactors["compactor-b"].kill()
        self.compactors["compactor-b"].start()

    def _end_compactor(self) -> None:
        self.compactors["compactor-b"].end()
        self.compactors["compactor-b"].start()

    def _kill_avro_job(self) -> None:
        self.deaths += 1
        self.jobs["avro"].kill()
        self.jobs["avro"].start()

    def _end_avro_job(self) -> None:
        self.jobs["avro"].end()
        self.jobs["avro"].start()

    def _take_registry_away(self) -> None:
        port = urlsplit(self.registry.url).port or 0
        self._registry_life.close()
        time.sleep(_AWAY_SECONDS)  # nobody answers for so long
        self._registry_life.enter_context(schema_registry(port, self.registry))

    def _freeze_broker(self) -> None:
        pid = self.broker.pid
        os.kill(pid, signal.SIGSTOP)
        time.sleep(_AWAY_SECONDS)  # nobody answers for so long
        os.kill(pid, signal.SIGCONT)

    def finish(self) -> None:
        """Kills the job that has run all the time, lets both jobs read what is left, and compacts what is due."""
        self.deaths += 1
        self.jobs["json"].kill()
        self.jobs["avro"].end()
        for name in self.jobs:
            path = self.root / f"{name}.json"
            path.write_text(json.dumps({**json.loads(path.read_text()), "trigger": "availableNow"}))
            self.jobs[name].start()
            code = self.jobs[name].wait(_FIRST_BATCH_SECONDS)
            if code != 0:
                self.jobs[name].unasked.append(f"{name}, that reads what is left, ended with {code}")
        for program in self.compactors.values():
            program.end()
        self.day.storage = self.store.storage

    def check(self) -> list[str]:
        """What is wrong: rows that differ, findings of the doctor, too many files that nothing names."""
        wrong = [line for program in self.programs() for line in program.unasked]
        left = 0
        for name, place in self.places().items():
            table = open_table(place, storage_options=self.store.storage)
            wrong += [f"{name}: {finding}" for finding in table.doctor(rows=True)]
            left += len(table.remove_orphan_files(older_than=timedelta(0)).files)
            folder = PlanFolder(handle_of(table).io, handle_of(table).metadata_path)
            plans = len(folder.plans(folder.list()))
            if plans > MOST_PLANS:
                wrong.append(f"{name}: {plans} compaction plans are there")
        most = ORPHANS_A_DEATH * self.deaths + len(self.proxy.done)
        if left > most:
            wrong.append(
                f"{left} files that nothing names, after {self.deaths} deaths and {len(self.proxy.done)} faults"
            )
        print(f"files that nothing names: {left}, at most {most} may be", flush=True)
        try:
            self.day.check_commits()
            self.day.check()
            for name in TABLES:
                self.avro.check(name, open_table(f"s3://{BUCKET}/avro/{name}", storage_options=self.store.storage))
        except AssertionError as e:
            wrong.append(str(e))
        return wrong

    def places(self) -> dict[str, str]:
        """Where each table lies."""
        json_tables = {table: self.day.place(table) for table in self.day.rows}
        return json_tables | {name: f"s3://{BUCKET}/avro/{name}" for name in TABLES}

    def object_counts(self) -> dict[str, int]:
        """The numbers of objects in the store: data and changelog files, and metadata of tables. Compaction plans do
        not count, as the last ones are kept; `check` looks at them.
        """
        data = metadata = 0
        for folder, _, files in os.walk(self.store.folder):
            parts = Path(folder).parts
            if any(part.startswith("bucket-") for part in parts):
                data += len(files)
            elif "compaction" not in parts:
                metadata += len(files)
        return {"data": data, "metadata": metadata}

    def checkpoint_files(self) -> int:
        """The number of files in the checkpoint of the job that runs all the time."""
        return sum(len(files) for _, _, files in os.walk(self.root / "checkpoint"))

    def _has_batch(self, name: str) -> bool:
        self.jobs[name].look()
        folder = self.root / ("checkpoint" if name == "json" else "checkpoint-avro") / "commits"
        return folder.exists() and any(p.name.isdigit() for p in folder.iterdir())

    def _fault(self, method: str, path: str) -> Trouble | None:
        return self._faults.choice(_TROUBLES) if self._faults.random() < FAULTS else None

    def _json_job(self, reader: str) -> Path:
        path = self.day.job_file(reader, records_a_batch=1000, poison_allowed=False)
        job: dict[str, Any] = json.loads(path.read_text())
        job |= {"trigger": "5 s", "on-table-failure": "stop"}
        job["options"] |= {"compaction": "dedicated", "compaction-plan.commits": "2"}
        for route in job["tables"]:
            route.pop("options", None)
            route["create"].setdefault("options", {}).update(_EXPIRY)
        return self._written("json", job)

    def _avro_job(self, reader: str) -> Path:
        job = {
            "source": {
                "format": "kafka",
                "reader": reader,
                "decode": "debezium-avro",
                "options": {
                    "kafka.bootstrap.servers": self.broker.bootstrap_servers,
                    "subscribe": self.avro.topic,
                    "startingOffsets": "earliest",
                    "maxOffsetsPerTrigger": "1000",
                },
                "registry": {"url": self.registry.url, "timeout": "2 s"},
            },
            "checkpoint": f"{self.root}/checkpoint-avro",
            "trigger": "5 s",
            "create": {"primary-key": ["id"], "options": {"bucket": "1", **_EXPIRY}},
            "options": {"schema-evolution": "evolve"},
            "storage": self.through_proxy,
            "tables": [{"source-table": "regex:shop\\.(.*)", "table": f"s3://{BUCKET}/avro/{{1}}"}],
        }
        return self._written("avro", job)

    def _written(self, name: str, settings: dict[str, Any]) -> Path:
        path = self.root / f"{name}.json"
        path.write_text(json.dumps(settings))
        return path
