"""Files read in worker processes: what ``readers`` does, where a file that ends its parser ends nothing else.

Whoever reads files that others have made calls these, and not ``readers``.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from nova_assets.errors import error_from_dict
from nova_assets.formats.input_file import File, bad_record_error, unreadable_file_error
from nova_assets.formats.read_outcome import ParsedRecords, RefusedRecord
from nova_assets.formats.worker_pool import Answer, WorkerDied, WorkerPool, WorkerTimedOut
from nova_assets.model.file_format import Format
from nova_assets.model.schema import Schema

_WORKER_POOL = WorkerPool("nova_assets.formats.parse_worker", max_workers=os.cpu_count() or 2)

_MAX_ATTEMPTS = 2
"""A worker may have been ended by something else than the file: the system, for want of memory."""

_BASE_SECONDS = 60.0
_MIN_BYTES_PER_SECOND = 1e6
"""The slowest reader, times ten."""

_MEMORY_SHARE = 0.75
"""Of the machine's memory."""


def read(file: File, format_: Format, schema: Schema | None) -> pa.Table:
    """All records of a file, parsed to the declared types; other columns as they are (``readers.read``).

    Raises:
        BadRecord: it is not whole, or not what it is said to be, or ends whatever reads it.
        EmptyInput: it has no record.
    """
    return _run_in_worker(file, "whole", format_, schema).tables[0]


def read_valid_records(file: File, format_: Format, schema: Schema, *, drop_undeclared: bool = False) -> ParsedRecords:
    """The records of a file that are what is declared, and those that are not (``readers.read_what_is_right``).

    Args:
        drop_undeclared: leave out columns that are not declared; otherwise what has one is refused.

    Raises:
        NovaError: nothing of it can be taken.
    """
    answer = _run_in_worker(file, "records", format_, schema, drop_undeclared)
    table, refused, *rest = answer.tables
    numbers = rest[0].column("number").to_pylist() if rest else range(*answer.fields["numbers"])
    return ParsedRecords(table, numbers, tuple(RefusedRecord(**r) for r in refused.to_pylist()))


def check_parquet_footer(file: File) -> None:
    """Raises BadRecord where a file is no whole Parquet file."""
    _run_in_worker(file, "footer", "parquet", None)


def _check_permission(file: File) -> None:
    """See that the user of this process may read a file: a worker may have been started by another one.

    Raises:
        BadRecord: the user may not.
    """
    try:
        with open(file.path, "rb"):
            return
    except PermissionError as error:
        raise unreadable_file_error(file, error) from error
    except OSError:  # the worker says what is wrong
        return


def _run_in_worker(
    file: File, operation: str, format_: Format, schema: Schema | None, drop_undeclared: bool = False
) -> Answer:
    _check_permission(file)
    job: dict[str, Any] = {
        "verb": operation,
        "path": os.path.abspath(file.path),
        "name": file.display_name,
        "largest": file.largest,
        "format": format_,
        "schema": None if schema is None else schema.as_json(),
        "drop": drop_undeclared,
    }
    seconds = None if file.largest is None else _BASE_SECONDS + file.largest / _MIN_BYTES_PER_SECOND
    causes: list[str] = []
    while len(causes) < _MAX_ATTEMPTS:
        try:
            answer = _WORKER_POOL.run_job(job, memory_bytes=_worker_memory_bytes(), timeout=seconds)
        except WorkerDied as death:
            causes.append(death.cause)
        except WorkerTimedOut:
            raise bad_record_error(
                file, f"the file cannot be read within {seconds:.0f} seconds", next="cut it into smaller files"
            ) from None
        else:
            if "error" in answer.fields:
                raise error_from_dict(answer.fields["error"])
            return answer
    raise bad_record_error(
        file,
        "the file ends the process that reads it",
        found=f"{' and '.join(dict.fromkeys(causes))}, {len(causes)} times",
        expected=f"a {format_} file that can be read",
        next="make the file anew; nova replay tries one that was set aside again",
    )


def _worker_memory_bytes() -> int | None:
    """Bytes that a worker may take; None where the system does not say what it has."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
    with suppress(OSError, ValueError):  # no group, or one without a limit
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return int(total * _MEMORY_SHARE)
