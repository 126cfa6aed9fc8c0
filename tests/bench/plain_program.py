"""A program that does the least with a Kafka topic of JSON records: it fetches them, parses them, and writes Parquet.

It has no keys, no order, no buckets, no Spark, and no commit. What a sink takes beyond it is the price of all these.
"""

from pathlib import Path

import confluent_kafka
import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq

AT_ONCE = 500
BLOCK_BYTES = 8 << 20
"""Bytes of records that are parsed together."""


def fetch_and_write(servers: str, topic: str, schema: pa.Schema, batch: int, folder: Path) -> int:
    """Writes the records of a topic into one Parquet file for each `batch` records, and returns how many there were."""
    folder.mkdir(parents=True)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "plain-program",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            # As our own tasks fetch: conf/sources/kafka_client.py.
            "fetch.wait.max.ms": 10,
            "max.partition.fetch.bytes": 4 << 20,
            "queued.max.messages.kbytes": 32 << 10,
            "queued.min.messages": 5_000,
            "fetch.queue.backoff.ms": 5,
        }
    )
    partitions = consumer.list_topics(topic).topics[topic].partitions
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in partitions])
    count = ended = 0
    while ended < len(partitions):
        with pq.ParquetWriter(folder / f"{count}.parquet", schema, compression="zstd", compression_level=1) as writer:
            left = batch
            while left and ended < len(partitions):
                values: list[bytes] = []
                size = 0
                while size < BLOCK_BYTES and len(values) < left and ended < len(partitions):
                    messages = consumer.consume(min(AT_ONCE, left - len(values)), 0.05)
                    found = [value for m in messages if m.error() is None and (value := m.value()) is not None]
                    ends = [error for m in messages if (error := m.error()) is not None]
                    assert all(e.code() == confluent_kafka.KafkaError._PARTITION_EOF for e in ends), ends
                    ended += len(ends)
                    values += found
                    size += sum(map(len, found))
                if values:
                    writer.write_table(_parsed(values, schema))
                count += len(values)
                left -= len(values)
    consumer.close()
    return count


def _parsed(values: list[bytes], schema: pa.Schema) -> pa.Table:
    text = b"\n".join(values)
    return pj.read_json(
        pa.BufferReader(text),
        pj.ReadOptions(use_threads=False, block_size=len(text) + 1),
        pj.ParseOptions(explicit_schema=schema),
    )
