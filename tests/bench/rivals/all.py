"""All rivals by name, in the order of the report."""

from collections.abc import Mapping

from tests.bench.rivals import delta, hudi, iceberg, others, ours
from tests.bench.rivals.rival import Rival

RIVALS: Mapping[str, Rival] = {
    rival.name: rival
    for rival in (
        ours.SINK,
        ours.JOB,
        others.PAIMON,
        delta.MERGE,
        iceberg.MERGE,
        others.PARQUET,
        ours.SINK_ON_35,
        hudi.UPSERT,
    )
}
