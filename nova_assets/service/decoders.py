"""Decodes bodies of inserts in processes of their own.

Anybody may have written a body, and what decodes it was made for files of one's own: a few bytes become gigabytes, or
end the process. Here that is a worker process (``formats.worker_pool``), with little memory and time, that knows no
secret.
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
"""Bytes that a process may take beside the rows."""


class BodyDecoders:
    """Some processes that decode, started when they are needed and kept for the next body.

    Args:
        at_once: so many bodies are decoded at the same time; more wait.
    """

    def __init__(self, max_parallel: int = min(4, max(2, (os.cpu_count() or 2) // 2))) -> None:
        self._workers = WorkerPool("nova_assets.service.decode_worker", max_parallel)

    def decode(
        self, body: Path, body_format: str, schema: Schema | None, max_bytes: int, timeout_seconds: float
    ) -> pa.Table:
        """The rows of a body. They lie in a file beside it, which may be deleted as long as the table is there.

        Args:
            body_format: ``arrow``, ``parquet`` or ``jsonl``.
            schema: of the channel; lines are parsed by it.
            max_bytes: bytes that the rows may take.
            timeout_seconds: that decoding may take, and that it waits for its turn.

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
            raise ServiceBusy(
                "other bodies are being decoded", next="ask again in a moment", reason="decoding"
            ) from None
        except WorkerTimedOut:
            raise RequestRefused(
                f"the body cannot be decoded within {timeout_seconds:g} seconds",
                next="send it in several inserts",
                status=413,
            ) from None
        except WorkerDied as death:
            log.warning("a body could not be decoded", extra={"exit_code": death.exit_code, "kind": body_format})
            raise BadRecord(
                "the body cannot be decoded",
                found="something that ends whoever decodes it",
                next="write it anew, and smaller",
            ) from None
        if answer.fields:
            raise error_from_problem(dict(answer.fields))
        with pa.memory_map(str(out)) as source:
            return pa.ipc.open_file(source).read_all()

    def close(self) -> None:
        """End the processes that wait for a body."""
        self._workers.close()
