"""Bodies of inserts: spooled to files, and decoded in worker processes.

A body comes from an untrusted client, but the decoders were made for trusted files: a few bytes can become gigabytes,
or crash the process. A worker process (``formats.worker_pool``) has limited memory and time, and knows no secrets.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pyarrow as pa
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request

from nova_assets.errors import BadRecord, RequestRefused, ServiceBusy, ServiceUnavailable
from nova_assets.formats.worker_pool import WorkerDied, WorkerPool, WorkersBusy, WorkerTimedOut
from nova_assets.masking import get_logger
from nova_assets.model.schema import Schema
from nova_assets.service.http.asgi import ARROW, LINES, PARQUET
from nova_assets.service.http.problems import error_from_problem
from nova_assets.service.own_folder import OwnFolder

_FORMAT_BY_MEDIA_TYPE = {
    ARROW: "arrow",
    PARQUET: "parquet",
    "application/x-parquet": "parquet",
    LINES: "jsonl",
    "application/jsonl": "jsonl",
    "application/jsonlines": "jsonl",
}

MAX_EXPANSION = 16
"""Maximum size of a decoded body, as a multiple of the body size limit."""

DECODE_TIME_SHARE = 0.75
"""Share of a request's time limit that decoding may take."""


def body_format(request: Request) -> str:
    """Format of a request body by its headers.

    Raises:
        RequestRefused: the type is unknown or the body is encoded (status 415).
    """
    content_type = ", ".join(request.headers.getlist("content-type"))
    encodings = request.headers.getlist("content-encoding")
    if any(e.strip().lower() != "identity" for e in encodings):
        raise RequestRefused(
            "the body has a content encoding",
            found=f"content-encoding: {', '.join(encodings)[:100]}",
            expected="a body without encoding; Parquet files and Arrow buffers may be compressed inside",
            next="send the body without Content-Encoding",
            status=415,
        )
    format_ = _FORMAT_BY_MEDIA_TYPE.get(content_type.partition(";")[0].strip().lower())
    if format_ is None:
        raise _unknown_type_error(
            "the body has an unsupported media type",
            content_type or "no Content-Type",
            ", ".join(_FORMAT_BY_MEDIA_TYPE),
        )
    return format_


class UploadSpool:
    """Folder of this process for request bodies.

    Folders of killed processes are deleted by the next process that creates one.

    Args:
        parent: folder in which the folder is created; by default, the system's temporary folder.
    """

    prefix = "nova-uploads-"

    def __init__(self, parent: Path | None = None) -> None:
        self._folder = OwnFolder(parent or Path(tempfile.gettempdir()), self.prefix)

    def ensure_folder(self) -> Path:
        """The folder. Created on first use, and again if it was deleted from outside."""
        return self._folder.ensure()

    def close(self) -> None:
        """Delete the folder."""
        self._folder.close()


@asynccontextmanager
async def spool_body(request: Request, suffix: str, spool: UploadSpool) -> AsyncIterator[Path]:
    """Request body as a temporary file. Size and time limits are enforced by the middleware.

    Raises:
        RequestRefused: the client disconnected.
        ServiceUnavailable: the file was deleted from outside while it was in use.
    """
    with _deleted_body_as_unavailable(None):
        temporary_folder = tempfile.TemporaryDirectory(
            dir=await run_in_threadpool(spool.ensure_folder), ignore_cleanup_errors=True
        )
    with temporary_folder as folder:
        file = Path(folder) / f"body.{suffix}"
        with _deleted_body_as_unavailable(None):
            await _write_body(request, file)
        with _deleted_body_as_unavailable(file):
            yield file


async def _write_body(request: Request, file: Path) -> None:
    try:
        with file.open("wb") as out:
            async for chunk in request.stream():
                await run_in_threadpool(out.write, chunk)
    except ClientDisconnect:
        raise RequestRefused(
            "the client disconnected before the whole body had arrived",
            next="nothing was inserted: send the request again",
            status=400,
            reason="went_away",
        ) from None


@contextmanager
def _deleted_body_as_unavailable(body_file: Path | None) -> Iterator[None]:
    """Raise ServiceUnavailable if an error was caused by the deletion of a body from outside.

    Args:
        body_file: the body, which cannot be decoded if it is missing; None while its folder or file is created.
    """
    try:
        yield
    except (FileNotFoundError, BadRecord) as error:
        if body_file is not None and body_file.exists():
            raise
        raise ServiceUnavailable(
            "the body of the request was deleted on the server before it was inserted",
            found="something else has emptied the folder in which the service keeps request bodies",
            next="send the request again, with the same Idempotency-Key",
            reason="body_deleted",
        ) from error


def _unknown_type_error(what: str, found: str, expected: str) -> RequestRefused:
    return RequestRefused(what, found=found[:100], expected=expected, next="set the Content-Type", status=415)


log = get_logger("nova_assets.service")

_WORKER_BASE_MEMORY = 512 * 2**20
"""Memory in bytes that a worker may use in addition to the rows."""


class BodyDecoders:
    """Pool of decoding processes. They start on demand and stay for later bodies.

    Args:
        max_parallel: maximum number of bodies that are decoded concurrently. Further bodies wait.
    """

    def __init__(self, max_parallel: int = min(4, max(2, (os.cpu_count() or 2) // 2))) -> None:
        self._workers = WorkerPool("nova_assets.service.decode_worker", max_parallel)

    def decode(
        self, body: Path, body_format: str, schema: Schema | None, max_bytes: int, timeout_seconds: float
    ) -> pa.Table:
        """Rows of a body. They are memory-mapped from a file beside it, which may be deleted while the table is in use.

        Args:
            body_format: ``arrow``, ``parquet`` or ``jsonl``.
            schema: schema of the channel, by which lines are parsed.
            max_bytes: size limit of the decoded rows.
            timeout_seconds: time limit of decoding, and of waiting for a free worker.

        Raises:
            EmptyInput, BadRecord, RequestRefused, ServiceBusy.
        """
        out = body.with_name("rows.arrow")
        job = {"body": str(body), "kind": body_format, "out": str(out), "most": max_bytes}
        job["schema"] = None if schema is None else schema.as_json()
        try:
            answer = self._workers.run_job(
                job,
                memory_bytes=2 * max_bytes + _WORKER_BASE_MEMORY,
                timeout=timeout_seconds,
                acquire_timeout=timeout_seconds,
            )
        except WorkersBusy:
            raise ServiceBusy("other bodies are being decoded", next="retry in a moment", reason="decoding") from None
        except WorkerTimedOut:
            raise RequestRefused(
                f"the body cannot be decoded within {timeout_seconds:g} seconds",
                next="send several inserts",
                status=413,
            ) from None
        except WorkerDied as death:
            log.warning("a body could not be decoded", extra={"exit_code": death.exit_code, "kind": body_format})
            raise BadRecord(
                "the body cannot be decoded",
                found="content that crashes the decoder",
                next="write the file again, or send smaller inserts",
            ) from None
        if answer.fields:
            raise error_from_problem(dict(answer.fields))
        with pa.memory_map(str(out)) as source:
            return pa.ipc.open_file(source).read_all()

    def close(self) -> None:
        """Stop the idle worker processes."""
        self._workers.end_idle_workers()
