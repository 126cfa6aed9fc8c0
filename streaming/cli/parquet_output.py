"""Writes rows to a new Parquet file, which appears only when it is complete."""

import os
from collections.abc import Iterable
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.parquet as pq

from bucketline.streaming.cli.progress_bar import progress_bar


def check_output(path: str) -> None:
    """Checks that the file can be created. Raises a usage error for another ending, an existing file, a missing
    folder.
    """
    target = Path(path)
    if target.suffix != ".parquet":
        raise click.BadParameter(f"{path}: only FILE.parquet can be written", param_hint="--output")
    if target.exists():
        raise click.BadParameter(f"{path} exists and is not replaced", param_hint="--output")
    if not target.parent.is_dir():
        raise click.BadParameter(f"there is no folder {target.parent}", param_hint="--output")


def write_parquet(batches: Iterable[pa.RecordBatch], schema: pa.Schema, path: str) -> int:
    """Writes the rows and returns how many there are. A failure leaves no file behind."""
    target = Path(path)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    rows = 0
    try:
        with pq.ParquetWriter(unfinished, schema, compression="zstd") as writer, progress_bar("rows") as bar:
            for batch in batches:
                writer.write_batch(batch)
                rows += batch.num_rows
                bar.advance(batch.num_rows)
        os.link(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)
    return rows
