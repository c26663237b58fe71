"""The functions of ``readers`` in worker processes, so that a file that crashes its parser crashes nothing else.

Use this module, not ``readers``, for all files of external origin.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from nova_assets.errors import error_from_dict
from nova_assets.formats.input_file import InputFile, bad_record_error, unreadable_file_error
from nova_assets.formats.parsed_records import ParsedRecords, RefusedRecord
from nova_assets.formats.worker_pool import Answer, WorkerDied, WorkerPool, WorkerTimedOut
from nova_assets.model.file_source import Format
from nova_assets.model.schema import Schema

_WORKER_POOL = WorkerPool("nova_assets.formats.parse_worker", max_workers=os.cpu_count() or 2)

_MAX_ATTEMPTS = 2
"""Attempts to read a file whose worker dies, because the system may have killed the worker for lack of memory."""

_BASE_SECONDS = 60.0
_MIN_BYTES_PER_SECOND = 1e6
"""Assumed minimum speed of a reader, a tenth of the slowest reader's speed."""

_MEMORY_SHARE = 0.75
"""Share of the machine's memory that a worker may use."""


def read_table(file: InputFile, format_: Format, schema: Schema | None) -> pa.Table:
    """Read all records of a file in the declared types, in a worker process (``readers.read``).

    Raises:
        BadRecord: the file is truncated, has another format or a bad value, or crashes its reader.
        EmptyInput: the file has no record.
        EngineUnavailable: no worker can be started.
    """
    return _run_in_worker(file, "whole", format_, schema).tables[0]


def read_valid_records(
    file: InputFile, format_: Format, schema: Schema, *, drop_undeclared: bool = False
) -> ParsedRecords:
    """Read the valid records of a file and its refused records, in a worker process (``readers.read_valid_records``).

    Args:
        file: the file.
        format_: format of the file.
        schema: declared columns.
        drop_undeclared: drop undeclared columns. Otherwise a record or file with an undeclared column is refused.

    Raises:
        NovaError: no record of the file can be accepted, or no worker can be started.
    """
    answer = _run_in_worker(file, "records", format_, schema, drop_undeclared)
    table, refused, *rest = answer.tables
    numbers = rest[0].column("number").to_pylist() if rest else range(*answer.fields["numbers"])
    return ParsedRecords(table, numbers, tuple(RefusedRecord(**r) for r in refused.to_pylist()))


def check_parquet_footer(file: InputFile) -> None:
    """Raise BadRecord unless the file is a Parquet file with a valid footer."""
    _run_in_worker(file, "footer", "parquet", None)


def _check_permission(file: InputFile) -> None:
    """Check that the current user may read a file, because the worker may have been started under another user.

    Raises:
        BadRecord: the current user may not read the file.
    """
    try:
        with open(file.path, "rb"):
            return
    except PermissionError as error:
        raise unreadable_file_error(file, error) from error
    except OSError:  # the worker reports the error
        return


def _run_in_worker(
    file: InputFile, operation: str, format_: Format, schema: Schema | None, drop_undeclared: bool = False
) -> Answer:
    _check_permission(file)
    job: dict[str, Any] = {
        "verb": operation,
        "path": os.path.abspath(file.path),
        "name": file.display_name,
        "largest": file.max_bytes,
        "format": format_,
        "schema": None if schema is None else schema.as_json(),
        "drop": drop_undeclared,
    }
    seconds = None if file.max_bytes is None else _BASE_SECONDS + file.max_bytes / _MIN_BYTES_PER_SECOND
    causes: list[str] = []
    while len(causes) < _MAX_ATTEMPTS:
        try:
            answer = _WORKER_POOL.run_job(job, memory_bytes=_worker_memory_bytes(), timeout=seconds)
        except WorkerDied as death:
            causes.append(death.cause)
        except WorkerTimedOut:
            raise bad_record_error(
                file, f"the file cannot be read within {seconds:.0f} seconds", next="split the file into smaller files"
            ) from None
        else:
            if "error" in answer.fields:
                raise error_from_dict(answer.fields["error"])
            return answer
    raise bad_record_error(
        file,
        "the file crashes the process that reads it",
        found=f"{' and '.join(dict.fromkeys(causes))}, {len(causes)} times",
        expected=f"a {format_} file that can be read",
        next="create the file again; nova replay reads a rejected file again",
    )


def _worker_memory_bytes() -> int | None:
    """Memory limit of a worker in bytes; None if the system does not report its memory."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
    with suppress(OSError, ValueError):  # no control group, or a group without a limit
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return int(total * _MEMORY_SHARE)
