"""Bodies of inserts: spooled to a file, and opened with care, since anybody may have written them.

A small body may hold very many rows (runs, dictionaries, compression), or offsets that lead anywhere: so it is read a
piece at a time, each is validated whole, and it ends where it would be too large.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from nova_assets.errors import BadRecord, EmptyInput, RequestRefused
from nova_assets.service.deployment import ARROW, LINES, PARQUET

_TYPES = {
    ARROW: "arrow",
    PARQUET: "parquet",
    "application/x-parquet": "parquet",
    LINES: "jsonl",
    "application/jsonl": "jsonl",
    "application/jsonlines": "jsonl",
}

EXPANDS = 16
"""A body may hold so many times its own limit, once it is decoded."""

_BATCH = 65_536


def kind_of(request: Request) -> str:
    """What a body is, as its headers say. Raises RequestRefused, with 415."""
    said = request.headers.get("content-type", "")
    if request.headers.get("content-encoding", "identity") != "identity":
        raise _unknown("the body is encoded", request.headers["content-encoding"], "a body as it is, or Arrow buffers")
    found = _TYPES.get(said.partition(";")[0].strip().lower())
    if found is None:
        raise _unknown("the body is of an unknown type", said or "no Content-Type", ", ".join(_TYPES))
    return found


@asynccontextmanager
async def spooled(request: Request, suffix: str) -> AsyncIterator[Path]:
    """The body as a file, gone afterwards. How large it may be, and how long it may take, is limited before."""
    with tempfile.TemporaryDirectory(prefix="nova-upload-") as folder:
        file = Path(folder) / f"body.{suffix}"
        with file.open("wb") as out:
            async for chunk in request.stream():
                await run_in_threadpool(out.write, chunk)
        yield file


def data_of(file: Path, kind: str, most: int) -> Any:
    """What an insert takes: the path of lines, which are parsed by the channel's schema; otherwise a table.

    Args:
        most: bytes that the rows may take in memory.

    Raises:
        EmptyInput, BadRecord, RequestRefused.
    """
    if file.stat().st_size == 0:
        raise EmptyInput("the body is empty", expected="rows, as the Content-Type says")
    if kind == "jsonl":
        return file
    try:
        return _table(_batches(file, kind), most)
    except (pa.ArrowException, OSError, EOFError) as error:
        what = {"arrow": "no Arrow IPC stream", "parquet": "no Parquet file"}[kind]
        raise BadRecord(f"the body is {what}", found=str(error).split("\n")[0][:300]) from error


def _batches(file: Path, kind: str) -> Iterator[pa.RecordBatch | pa.Schema]:
    """The schema, then the rows."""
    with file.open("rb") as source:
        if kind == "parquet":
            opened = pq.ParquetFile(source)
            yield opened.schema_arrow
            yield from opened.iter_batches(batch_size=_BATCH, use_threads=False)
            return
        with pa.ipc.open_stream(source) as stream:
            yield stream.schema
            yield from stream


def _table(parts: Iterator[pa.RecordBatch | pa.Schema], most: int) -> pa.Table:
    schema = next(parts)
    taken: list[pa.RecordBatch] = []
    size = 0
    for batch in parts:
        batch.validate(full=True)
        size += batch.nbytes
        if size > most:
            raise RequestRefused(
                "the body holds more rows than may come at once",
                found=f"more than {most} bytes once it is decoded",
                expected=f"at most {most}",
                next="send it in several inserts, each with an idempotency key of its own",
                status=413,
            )
        taken.append(batch)
    return pa.Table.from_batches(taken, schema)


def _unknown(what: str, found: str, expected: str) -> RequestRefused:
    return RequestRefused(what, found=found[:100], expected=expected, next="name it in Content-Type", status=415)
