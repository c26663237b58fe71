"""Worker process that decodes insert bodies for ``uploads``."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from nova_assets.errors import BadRecord, EmptyInput, RequestRefused, ServiceUnavailable
from nova_assets.formats import readers
from nova_assets.formats.column_conversion import to_unencoded_column, unencoded_type
from nova_assets.formats.input_file import InputFile
from nova_assets.formats.parquet_input import ParquetInput
from nova_assets.formats.value_checks import validate_table
from nova_assets.formats.worker_loop import Job, Outcome, serve_jobs
from nova_assets.model.schema import Schema
from nova_assets.nova_error import NovaError
from nova_assets.service.http.problems import problem_from_error

_PARQUET_BATCH_ROWS = 8192
"""Number of rows of a Parquet file that are decoded at once."""

_SERVER_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE})
_INVALID_BODY_TEXTS = {
    "arrow": "not an Arrow IPC stream",
    "parquet": "not a Parquet file",
    "jsonl": "not in JSON lines",
}
_EXPECTED_BODY_TEXTS = {
    "arrow": "a stream of pyarrow.ipc.new_stream, not a file of pyarrow.ipc.new_file",
    "parquet": "a whole Parquet file",
    "jsonl": "one JSON object per line",
}

SchemaOrBatch: TypeAlias = Any
"""A schema, then record batches."""


def decode_body(body: Path, body_format: str, schema: Schema | None, output_file: Path, max_bytes: int) -> None:
    """Decode a body into an Arrow file, with full validation of each batch.

    Dictionaries and views are expanded to plain types, since later steps process each row.

    Args:
        body_format: ``arrow``, ``parquet`` or ``jsonl``.
        schema: schema of the channel, by which lines are parsed.
        max_bytes: size limit of the decoded rows.

    Raises:
        EmptyInput, BadRecord, RequestRefused.
        ServiceUnavailable: the disk is full, or another resource of the server is exhausted.
    """
    if body.stat().st_size == 0:
        raise EmptyInput("the body is empty", expected="rows in the format of the Content-Type")
    try:
        _write_arrow_file(_schema_then_batches(body, body_format, schema), output_file, max_bytes)
    except NovaError:
        raise
    except MemoryError as error:
        raise decoded_body_too_large_error(max_bytes) from error
    except Exception as error:  # the parsers raise many kinds of errors on invalid input
        if isinstance(error, OSError) and error.errno in _SERVER_ERRNOS:
            raise ServiceUnavailable("the service has no space for the body", next="retry later") from error
        parser_message, expected_text = str(error).split("\n")[0][:300], _EXPECTED_BODY_TEXTS[body_format]
        raise BadRecord(
            f"the body is {_INVALID_BODY_TEXTS[body_format]}", found=parser_message, expected=expected_text
        ) from error


def decoded_body_too_large_error(max_bytes: int) -> RequestRefused:
    """Error for a body whose decoded rows exceed the size limit."""
    return RequestRefused(
        "the decoded body is too large",
        found=f"more than {max_bytes:,} bytes after decoding",
        expected=f"at most {max_bytes:,} bytes",
        next="send several inserts, each with its own idempotency key",
        status=413,
    )


def _schema_then_batches(body: Path, body_format: str, schema: Schema | None) -> Iterator[SchemaOrBatch]:
    """Schema of a body, followed by its record batches."""
    if body_format == "jsonl":
        table = readers.read_table(InputFile(body, "the body"), "json", schema)
        yield table.schema
        yield from table.to_batches()
        return
    if body_format == "parquet":
        with body.open("rb") as source:
            file = ParquetInput(source, schema, "the body")
            yield file.schema
            for table in file.iter_tables(_PARQUET_BATCH_ROWS, threads=False):
                yield from table.to_batches()
        return
    # A file in memory has a known end. From another source, Arrow would allocate what a message claims to hold.
    with pa.memory_map(str(body)) as mapped, pa.ipc.open_stream(mapped) as stream:
        yield stream.schema
        yield from stream


def _write_arrow_file(parts: Iterator[SchemaOrBatch], output_file: Path, max_bytes: int) -> None:
    first = next(parts)
    schema = pa.schema([f.with_type(unencoded_type(f.type)) for f in first], first.metadata)
    null_columns = sum(pa.types.is_null(f.type) for f in schema)
    size = 0
    with pa.OSFile(str(output_file), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in parts:
            validate_table(pa.Table.from_batches([batch]))
            # Even rows without any bytes need memory when later steps combine them with others.
            size += 8 * batch.num_rows * (1 + null_columns)
            if size <= max_bytes:
                batch = _unencoded_batch(batch, schema)
                size += batch.nbytes
            if size > max_bytes:
                raise decoded_body_too_large_error(max_bytes)
            writer.write_batch(batch)


def _unencoded_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [to_unencoded_column(pa.chunked_array([c]), n) for n, c in zip(schema.names, batch.columns, strict=True)]
    arrays = [c.chunk(0) if c.num_chunks == 1 else pa.concat_arrays(c.chunks) for c in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema) if arrays else batch


def handle_decode_job(job: Job) -> Outcome:
    """Decode one body. The outcome holds the problem if decoding fails."""
    schema = None if job["schema"] is None else Schema.from_json(job["schema"])
    try:
        decode_body(Path(job["body"]), job["kind"], schema, Path(job["out"]), job["most"])
    except NovaError as error:
        return problem_from_error(error).body, ()
    return {}, ()


if __name__ == "__main__":
    serve_jobs(handle_decode_job, threads=1)
