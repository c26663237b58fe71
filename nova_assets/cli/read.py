"""``nova read``: print rows of a channel to the terminal or a pipe, or write them to a file."""

from __future__ import annotations

import base64
import contextlib
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import (
    TableGrid,
    escape_unprintable,
    format_bytes,
    is_terminal,
    pluralize,
    print_progress,
)
from nova_assets.errors import NotSupported
from nova_assets.formats.python_values import to_python_rows
from nova_assets.masking import mask_address
from nova_assets.model import reads
from nova_assets.nova_error import NovaError
from nova_assets.store.read import Selection
from nova_assets.store.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

TERMINAL_ROW_LIMIT = 20
"""Maximum number of rows on a terminal without --limit."""


def _check_output_suffix(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    if value is not None and value.suffix not in _WRITER_BY_SUFFIX:
        raise click.BadParameter(f"{value} ends in {value.suffix!r}; expected one of {', '.join(_WRITER_BY_SUFFIX)}")
    return value


def _parse_columns(ctx: click.Context, param: click.Parameter, value: str | None) -> list[str] | None:
    names = None if value is None else [name.strip() for name in value.split(",")]
    if names is not None and not all(names):
        raise click.BadParameter(f"{value!r} names an empty column; expected names with commas between: a,b")
    return names


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.option("--at", type=click.IntRange(0), metavar="N", help="Version to read.  [default: the head]")
@click.option(
    "--since", type=click.IntRange(0), metavar="N", help="Read the changes after version N instead of a snapshot."
)
@click.option("--partition", metavar="COL=VALUE[/…]", help="One partition, or all partitions with these values.")
@click.option("--columns", callback=_parse_columns, metavar="A,B", help="Only these columns.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    help=f"Maximum number of rows.  [default: {TERMINAL_ROW_LIMIT} on a terminal, otherwise all]",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=_check_output_suffix,
    metavar="FILE",
    help="Write to FILE.parquet, FILE.csv or FILE.jsonl.",
)
def read(
    deployment: Deployment,
    channel: str,
    at: int | None,
    since: int | None,
    partition: str | None,
    columns: list[str] | None,
    limit: int | None,
    output: Path | None,
) -> CommandResult:
    """Read rows of CHANNEL: the snapshot at its head or --at a version, or the changes --since a version. Changes of
    keyed channels have a column _deleted. In a pipe, rows are complete, with tabs between the columns.

    All rows are fetched into memory first. Reading starts Spark.

    \b
    JSON: {"channel", "at", "since" or null, "blocks": NOTATION, "columns": [NAME], "rows": [{COLUMN: VALUE}]}
    With --output: {"channel", "at", "since", "blocks", "columns", "output": FILE, "count": ROWS, "bytes"}
    """
    is_for_terminal = output is None and not deployment.quiet and is_terminal(sys.stdout)
    row_limit = limit if limit is not None or not is_for_terminal else TERMINAL_ROW_LIMIT
    with deployment.open_read_only(with_project=True) as store:
        selection = store.read(channel, at, since=since, partition=partition, columns=columns)
        head = store.catalog.definitions.channel(channel).head
        if not deployment.catalog_exists and not deployment.quiet:
            click.echo(f"there is no catalog at {mask_address(deployment.settings.catalog)} yet", err=True)
        print_progress(f"reading {channel}; starting Spark takes a moment", deployment.quiet)
        fetched_rows = _fetch_rows(store, selection, None if row_limit is None else row_limit + 1)
    has_more = row_limit is not None and fetched_rows.num_rows > row_limit
    rows = fetched_rows.slice(0, row_limit) if row_limit is not None else fetched_rows
    data: dict[str, Any] = {
        "channel": channel,
        "at": head if at is None else at,
        "since": since,
        "blocks": reads.describe_read(selection.plan),
        "columns": rows.column_names,
    }
    if output is not None:
        byte_count = _write_file(rows, output)
        summary = f"{output}: {pluralize(rows.num_rows, 'row')}, {format_bytes(byte_count)}"
        data |= {"output": str(output), "count": rows.num_rows, "bytes": byte_count}
        return CommandResult(data, lambda console: console.print(summary))
    if deployment.quiet:
        data["rows"] = [{name: to_json_value(value) for name, value in row.items()} for row in to_python_rows(rows)]
    return CommandResult(data, lambda console: _show_rows(console, rows, has_more))


def _fetch_rows(store: Store, selection: Selection, limit: int | None) -> pa.Table:
    """Rows of a selection, at most ``limit`` if it is given."""
    if limit is None:
        return selection.to_arrow()
    with store.engine.computation_scope():
        return store.engine.frames.to_arrow(selection.to_spark().limit(limit))


def _show_rows(console: Console, rows: pa.Table, has_more: bool) -> None:
    if not console.is_terminal:
        for line in (rows.column_names, *(map(format_cell, row.values()) for row in to_python_rows(rows))):
            click.echo("\t".join(map(escape_unprintable, line)))
        return
    console.print(row_grid(rows))
    if has_more:
        console.print(f"{rows.num_rows} rows; there are more. --limit N shows N rows, --output FILE writes all rows")
    else:
        console.print(pluralize(rows.num_rows, "row"))


def row_grid(rows: pa.Table) -> TableGrid:
    """Rows as a table for the terminal."""
    grid = TableGrid(*rows.column_names, shorten=rows.column_names)
    for row in to_python_rows(rows):
        grid.add(*(escape_unprintable(format_cell(value)) for value in row.values()))
    return grid


# values, exactly, for other programs


def to_json_value(value: Any) -> Any:
    """Convert a row value to a JSON value.

    Dates and times become ISO 8601 text. Decimals become text, because JSON numbers would round them. Bytes become
    Base64, and maps become lists of [key, value]. Non-finite floats become the texts NaN, Infinity and -Infinity, as in
    Spark.
    """
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _format_non_finite(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(k): to_json_value(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(v) for v in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal | timedelta):
        return str(value)
    return str(value)


def format_cell(value: Any) -> str:
    """Text of a value in a table. Null is ``null``, text stays unchanged, and nested values are JSON."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    json_value = to_json_value(value)
    return json_value if isinstance(json_value, str) else json.dumps(json_value, ensure_ascii=False)


def _format_non_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


# files


def _write_file(rows: pa.Table, file: Path) -> int:
    """Write rows to a temporary file and replace the target atomically. Returns the size in bytes."""
    try:
        with _replace_file_atomically(file) as out:
            _WRITER_BY_SUFFIX[file.suffix](rows, out)
        return file.stat().st_size
    except OSError as error:
        raise NovaError(
            f"{file} cannot be written", found=error.strerror or str(error), next="name another file with --output"
        ) from error


@contextlib.contextmanager
def _replace_file_atomically(file: Path) -> Iterator[IO[bytes]]:
    temporary_descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with open(temporary_descriptor, "wb") as out:
            yield out
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, file)
    except BaseException:
        os.unlink(temporary)
        raise


def _write_parquet(rows: pa.Table, out: IO[bytes]) -> None:
    import pyarrow.parquet

    pyarrow.parquet.write_table(rows, out, compression="zstd")


def _write_csv(rows: pa.Table, out: IO[bytes]) -> None:
    import pyarrow.csv
    import pyarrow.types as t

    from nova_assets.formats.value_checks import check_python_values

    nested = [f.name for f in rows.schema if t.is_nested(f.type) or t.is_map(f.type) or t.is_binary(f.type)]
    if nested:
        raise NotSupported(
            f"CSV cannot hold the columns {', '.join(nested)}: they are nested or binary",
            next="name a .parquet or .jsonl file with --output, or select other columns with --columns",
            columns=nested,
        )
    check_python_values(rows)
    pyarrow.csv.write_csv(rows, out)


def _write_json_lines(rows: pa.Table, out: IO[bytes]) -> None:
    for row in to_python_rows(rows):
        line = {name: to_json_value(value) for name, value in row.items()}
        out.write(json.dumps(line, ensure_ascii=False, allow_nan=False).encode() + b"\n")


_WRITER_BY_SUFFIX: dict[str, Callable[[Any, IO[bytes]], None]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".jsonl": _write_json_lines,
}
