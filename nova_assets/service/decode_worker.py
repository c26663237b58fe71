"""The worker process that decodes bodies of inserts (``decoders`` asks it)."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from nova_assets.errors import BadRecord, EmptyInput, NovaError, RequestRefused, ServiceUnavailable
from nova_assets.formats import readers
from nova_assets.formats.conversion import plain_type
from nova_assets.formats.input_file import File
from nova_assets.formats.worker_loop import Job, Outcome, serve_jobs
from nova_assets.model.schema import Schema
from nova_assets.service.http.problems import problem_of

_ROWS = 8192
"""So many rows of a Parquet file are decoded at once."""

_OURS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE})
_WHAT = {"arrow": "no Arrow IPC stream", "parquet": "no Parquet file", "jsonl": "no JSON lines"}
_EXPECTED = {
    "arrow": "what pyarrow.ipc.new_stream writes; files of Arrow's (new_file) are something else",
    "parquet": "a whole Parquet file",
    "jsonl": "one JSON object a line",
}

Part: TypeAlias = Any
"""A schema, then record batches."""


def decoded(body: Path, kind: str, schema: Schema | None, out: Path, most: int) -> None:
    """Write the rows of a body, each piece of them validated whole, as an Arrow file of plain types: dictionaries and
    views are written out, for what is done to rows later is done to each of them.

    Args:
        kind: ``arrow``, ``parquet`` or ``jsonl``.
        schema: of the channel; lines are parsed by it.
        most: bytes that the rows may take.

    Raises:
        EmptyInput, BadRecord, RequestRefused.
    """
    if body.stat().st_size == 0:
        raise EmptyInput("the body is empty", expected="rows, as the Content-Type says")
    try:
        _write(_parts(body, kind, schema), out, most)
    except NovaError:
        raise
    except MemoryError as error:
        raise too_large(most) from error
    except Exception as error:  # whatever the libraries make of it
        if isinstance(error, OSError) and error.errno in _OURS:
            raise ServiceUnavailable("the service has no room for the body", next="ask again later") from error
        found, expected = str(error).split("\n")[0][:300], _EXPECTED[kind]
        raise BadRecord(f"the body is {_WHAT[kind]}", found=found, expected=expected) from error


def too_large(most: int) -> RequestRefused:
    """The refusal of a body that holds more than it looks like."""
    return RequestRefused(
        "the body holds more rows than may come at once",
        found=f"more than {most:,} bytes once it is decoded",
        expected=f"at most {most:,}",
        next="send it in several inserts, each with an idempotency key of its own",
        status=413,
    )


def _parts(body: Path, kind: str, schema: Schema | None) -> Iterator[Part]:
    """The schema, then the rows."""
    if kind == "jsonl":
        table = readers.read(File(body, "the body"), "json", schema)
        yield table.schema
        yield from table.to_batches()
        return
    with body.open("rb") as source:
        if kind == "parquet":
            file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
            yield file.schema_arrow
            yield from file.iter_batches(batch_size=_ROWS, use_threads=False)
            return
        with pa.ipc.open_stream(source) as stream:
            yield stream.schema
            yield from stream


def _write(parts: Iterator[Part], out: Path, most: int) -> None:
    first = next(parts)
    schema = pa.schema([f.with_type(plain_type(f.type)) for f in first], first.metadata)
    empty = sum(pa.types.is_null(f.type) for f in schema)
    size = 0
    with pa.OSFile(str(out), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in parts:
            batch.validate(full=True)
            # Rows without a byte take some where they are put together with others.
            size += 8 * batch.num_rows * (1 + empty)
            if size <= most:
                batch = batch.cast(schema)
                size += batch.nbytes
            if size > most:
                raise too_large(most)
            writer.write_batch(batch)


def handle(job: Job) -> Outcome:
    """Decode one body; the problem, where that fails."""
    schema = None if job["schema"] is None else Schema.from_json(job["schema"])
    try:
        decoded(Path(job["body"]), job["kind"], schema, Path(job["out"]), job["most"])
    except NovaError as error:
        return problem_of(error)[1], ()
    return {}, ()


if __name__ == "__main__":
    serve_jobs(handle, threads=1)
