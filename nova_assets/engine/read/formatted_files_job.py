"""Task of Spark's Python workers that reads files of blocks which Spark itself does not read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from nova_assets.engine.read.spark_merge import DELTA_INDEX
from nova_assets.engine.session.worker_errors import to_task_error
from nova_assets.engine.storage.formatted_files import FormattedFile
from nova_assets.model.schema import Schema
from nova_assets.nova_error import NovaError
from nova_assets.plan.batch_size import ARROW_BATCH_BYTES, rows_per_batch

_MAX_BATCH_ROWS = 1 << 16


def read_with_delta_index(file: FormattedFile, schema: Schema, *, with_delta_index: bool) -> pa.Table:
    """Rows of a file, with the index of its delta if requested."""
    rows = file.read(schema)
    index = pa.scalar(file.delta_index, pa.int32())
    return rows.append_column(DELTA_INDEX, pa.repeat(index, rows.num_rows)) if with_delta_index else rows


def read_formatted_files_job(
    files: Sequence[FormattedFile], schema: Schema, *, with_delta_index: bool
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Task for Spark: consumes numbers of files, and yields the rows of these files."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for batch in batches:
                for n in batch.column(0).to_pylist():
                    rows = read_with_delta_index(files[n], schema, with_delta_index=with_delta_index)
                    width = rows.nbytes // max(1, rows.num_rows)
                    yield from rows.to_batches(rows_per_batch(ARROW_BATCH_BYTES, width, _MAX_BATCH_ROWS))
        except NovaError as error:
            raise to_task_error(error) from None

    return read
