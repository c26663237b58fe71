"""Bodies of inserts, spooled to a file; ``decoders`` opens it."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from nova_assets.errors import RequestRefused
from nova_assets.service.media import ARROW, LINES, PARQUET

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

DECODES = 0.75
"""So much of the time for a request may go into that."""


def kind_of(request: Request) -> str:
    """What a body is, as its headers say. Raises RequestRefused, with 415."""
    said = ", ".join(request.headers.getlist("content-type"))
    encodings = request.headers.getlist("content-encoding")
    if any(e.strip().lower() != "identity" for e in encodings):
        raise _unknown("the body is encoded", ", ".join(encodings), "a body as it is, or Arrow buffers")
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


def _unknown(what: str, found: str, expected: str) -> RequestRefused:
    return RequestRefused(what, found=found[:100], expected=expected, next="name it in Content-Type", status=415)
