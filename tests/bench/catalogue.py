"""The measurements by name."""

from collections.abc import Mapping

from tests.bench import (
    avro_stream,
    bucket_modes,
    decode,
    files_left_out,
    flush,
    full_compaction,
    kafka,
    key_index,
    long_stream,
    many_tables,
    merge_read,
    paimon_sink,
    point_query,
    rust,
    scale,
    small_and_first,
    small_batch,
    spark_reader,
    stores,
    table_modes,
    upserts,
    written_bytes,
)
from tests.bench.result import Bench

BENCHES: Mapping[str, Bench] = {
    "3a": flush.run,
    "3b": upserts.run,
    "3c": full_compaction.run,
    "3d": long_stream.run,
    "4": merge_read.run,
    "5-modes": bucket_modes.run,
    "5-small": small_batch.run,
    "5-index": key_index.run,
    "avro": avro_stream.run,
    "bytes": written_bytes.run,
    "decode": decode.run,
    "kafka": kafka.run,
    "left-out": files_left_out.run,
    "modes": table_modes.run,
    "paimon": paimon_sink.run,
    "point": point_query.run,
    "reader": spark_reader.run,
    "rust": rust.run,
    "scale": scale.run,
    "small-batch": small_and_first.run,
    "stores": stores.run,
    "tables": many_tables.run,
}
