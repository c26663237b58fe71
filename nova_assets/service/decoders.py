"""Decoding of insert bodies in worker processes.

A body comes from an untrusted client, but the decoders were made for trusted files: a few bytes can become gigabytes,
or crash the process. A worker process (``formats.worker_pool``) has limited memory and time, and knows no secrets.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa

from nova_assets.errors import BadRecord, RequestRefused, ServiceBusy
from nova_assets.formats.worker_pool import WorkerDied, WorkerPool, WorkersBusy, WorkerTimedOut
from nova_assets.masking import get_logger
from nova_assets.model.schema import Schema
from nova_assets.service.http.problems import error_from_problem

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
