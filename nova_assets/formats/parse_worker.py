"""Worker process that reads files on behalf of ``isolated_reader``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from nova_assets.errors import BadRecord
from nova_assets.formats import readers
from nova_assets.formats.input_file import InputFile, bad_record_error, name_file_in_nova_errors
from nova_assets.formats.parquet_and_orc import call_columnar_reader
from nova_assets.formats.parsed_records import REFUSED_SCHEMA, ParsedRecords
from nova_assets.formats.value_checks import validate_table
from nova_assets.formats.worker_loop import Job, Outcome, serve_jobs
from nova_assets.model.schema import Schema
from nova_assets.nova_error import NovaError


def handle_job(job: Job) -> Outcome:
    """Run one read job. Returns the file's tables, or the error that prevented the read."""
    file = InputFile(Path(job["path"]), job["name"], job["largest"])
    try:
        with name_file_in_nova_errors(file.display_name):
            fields, tables = _run_operation(job, file)
            for table in tables:
                validate_table(table)
        for table in tables:
            pa.ipc.new_stream(pa.BufferOutputStream(), table.schema).close()  # rejects types nested too deeply
        return fields, tables
    except NovaError as error:
        return {"error": error.as_dict()}, ()
    except MemoryError:
        return {"error": _too_large_error(file).as_dict()}, ()
    except Exception as error:  # libraries raise any error on damaged bytes
        lines = str(error).splitlines() or [""]
        found = f"{type(error).__name__}: {lines[0][:300]}"
        return {
            "error": bad_record_error(
                file, "the file cannot be read", found=found, next="create the file again"
            ).as_dict()
        }, ()


def _run_operation(job: Job, file: InputFile) -> Outcome:
    if job["verb"] == "footer":
        call_columnar_reader(file, lambda path: pq.ParquetFile(path).close(), "Parquet")
        return {}, ()
    schema = None if job["schema"] is None else Schema.from_json(job["schema"])
    if job["verb"] == "whole":
        return {}, (readers.read_table(file, job["format"], schema),)
    assert schema is not None
    return _parsed_to_outcome(readers.read_valid_records(file, job["format"], schema, drop_undeclared=job["drop"]))


def _parsed_to_outcome(parsed: ParsedRecords) -> Outcome:
    refused = pa.Table.from_pylist([_escape_surrogates(asdict(r)) for r in parsed.refused], REFUSED_SCHEMA)
    line_numbers = parsed.line_numbers
    if isinstance(line_numbers, range):
        return {"numbers": [line_numbers.start, line_numbers.stop]}, (parsed.table, refused)
    return {}, (parsed.table, refused, pa.table({"number": _int64_array(line_numbers)}))


def _int64_array(line_numbers: Sequence[int]) -> pa.Array:
    return pa.array(line_numbers, pa.int64())


def _escape_surrogates(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields with lone surrogates escaped, because a reason may quote a value that UTF-8 cannot encode."""
    return {n: v.encode("utf-8", "backslashreplace").decode() if isinstance(v, str) else v for n, v in fields.items()}


def _too_large_error(file: InputFile) -> BadRecord:
    return bad_record_error(
        file,
        "the file needs more memory than is available",
        expected="a file whose rows fit into memory",
        next="split the file into smaller files",
    )


if __name__ == "__main__":
    serve_jobs(handle_job)
