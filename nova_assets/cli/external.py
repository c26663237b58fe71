"""``nova external``: write the definitions of external tables, and keep them current with their sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.external_sources import (
    CheckedExternal,
    NewExternal,
    check_external_channels,
    new_database_table,
    new_folder,
    new_metastore_table,
    write_changes,
)
from nova_assets.errors import DefinitionError
from nova_assets.model.database_table import is_database_url
from nova_assets.model.metastore_table import is_metastore_address

_DATABASE_OPTIONS = {
    "table": ("TABLE", "Table or view of the database, such as public.orders."),
    "query": ("SQL", "SELECT statement in place of a table."),
    "user": ("USER", "Database user, if the address names none."),
    "password_env": ("VARIABLE", "Environment variable that holds the password."),
    "password_file": ("FILE", "File that holds the password."),
    "freshness_column": ("COLUMN", "Column whose largest value changes with the rows of a partition."),
    "freshness_query": ("SQL", "Query with the partition columns and columns that change with the rows."),
    "incremental": ("COLUMN", "Read only rows above the largest value of this column."),
    "settle": ("PERIOD", 'Age from which a row of an incremental date or time is read, such as "10m".'),
}


@click.group()
def external() -> None:
    """Write the definitions of external tables from their sources, and keep them current.

    nova external add LOCATION writes a file into the folder of datasets. nova external check compares the definitions
    with their sources. Each subcommand takes --json, and add takes --dry-run. See nova external add --help and nova
    external check --help.

    \b
    JSON: {"channel", "file", ...}; with check: {"checked": [...]}
    """


def _database_options(function: Any) -> Any:
    for name, (metavar, text) in reversed(_DATABASE_OPTIONS.items()):
        function = click.option(f"--{name.replace('_', '-')}", metavar=metavar, help=text)(function)
    return function


@external.command(cls=NovaCommand, checks_project=False)
@click.argument("location")
@click.option("--name", metavar="NAME", help="Name of the channel.  [default: that of the folder or table]")
@click.option("--into", metavar="FOLDER", default="sql", show_default=True, help="Folder of the datasets.")
@click.option(
    "--partition", "partitions", multiple=True, metavar="COLUMN", help="Partition column of a database table."
)
@click.option("--done", metavar="FILE", help="Name of the file that marks a folder as complete.")
@_database_options
@click.option("--dry-run", is_flag=True, help="Print the file. Write nothing.")
@click.pass_obj
def add(
    deployment: Deployment,
    /,
    location: str,
    name: str | None,
    into: str,
    partitions: tuple[str, ...],
    done: str | None,
    dry_run: bool,
    **options: str | None,
) -> CommandResult:
    """Write the file of an external table. LOCATION is a folder, s3://BUCKET/PREFIX, hdfs://NAMENODE/PATH,
    postgresql://USER@HOST:PORT/DATABASE, or thrift://HOST:PORT/DATABASE.TABLE for a table of a Hive metastore.

    Columns and types are read from the newest files, from the database, or from the metastore. Partition columns of a
    folder come from the names of its folders (day=2024-01-01), as text. An existing file is never replaced; nova
    external check --write updates it. The password of a database is read from the environment or from a file, and is
    not written.

    \b
    JSON: {"channel", "file", "sql", "written": bool}
    """
    given = {n: v for n, v in options.items() if v is not None}
    if is_database_url(location):
        if done is not None:
            raise click.UsageError(
                "--done is for files; --freshness-query says which partitions of a table are complete"
            )
        new = new_database_table(location, name, partitions, given)
    else:
        if given or partitions:
            first = next(iter(given), "partition").replace("_", "-")
            raise click.UsageError(f"--{first} is for databases, and {location} is none")
        if is_metastore_address(location):
            new = new_metastore_table(location, name, done)
        else:
            new = new_folder(deployment, location, name, done)
    file = Path(into) / f"{new.name}.sql"
    if file.exists():
        raise DefinitionError(
            f"{file} exists already",
            expected="a new file",
            next=f"nova external check {new.name} --write, or --name another name",
        )
    if not dry_run:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(new.sql, encoding="utf-8")
    data = {"channel": new.name, "file": str(file), "sql": new.sql, "written": not dry_run}
    return CommandResult(data, lambda console: _show_new(console, new, file, dry_run))


@external.command(cls=NovaCommand, checks_project=False)
@click.argument("channels", nargs=-1, metavar="[CHANNEL]...")
@click.option("--write", is_flag=True, help="Update the columns in the files of the definitions.")
@click.pass_obj
def check(deployment: Deployment, channels: tuple[str, ...], write: bool) -> CommandResult:
    """Compare the columns of external tables with their sources. By default, check all external channels.

    A new column breaks nothing. A column that was dropped, or that has a type which the declared type does not
    represent, is breaking: the channel cannot be refreshed before its definition follows. With --write, the columns in
    the file follow the source, and everything else in the file stays as it is. nova check then shows which datasets
    the new columns break. Of a folder, the newest 20 files are compared.

    Exits with 1 if a change is breaking and not written, or if a source does not answer.

    \b
    JSON: {"checked": [{"channel", "file", "changes": [{"column", "kind": "added"|"dropped"|"retyped", "declared",
           "actual", "breaking"}], "breaking", "written": bool, "error": {"code", "what", ...} or null}]}
    """
    checked = check_external_channels(deployment, channels)
    if write:
        checked = [write_changes(c) for c in checked]
    data = {"checked": [c.as_json() for c in checked]}
    needs_attention = any(c.result.error is not None or (c.result.is_breaking and not c.is_written) for c in checked)
    return CommandResult(data, lambda console: _show_checked(console, checked), 1 if needs_attention else 0)


def _show_new(console: Console, new: NewExternal, file: Path, dry_run: bool) -> None:
    if dry_run:
        console.print(new.sql.rstrip(), markup=False, highlight=False, soft_wrap=True)
    else:
        console.print(f"wrote {file}; next: nova refresh {new.name}", markup=False, highlight=False, soft_wrap=True)


def _show_checked(console: Console, checked: list[CheckedExternal]) -> None:
    for one in checked:
        result = one.result
        if result.error is not None:
            lines = [f"{result.channel}: {result.error.what}", f"  {result.error.found}"]
        elif not result.changes:
            lines = [f"{result.channel}: as its source"]
        else:
            lines = [f"{result.channel}:{' written to ' + str(one.file) if one.is_written else ''}"]
            lines += [f"  {'breaking: ' if c.breaking else ''}{c.text}" for c in result.changes]
        for line in lines:
            console.print(line, markup=False, highlight=False, soft_wrap=True)
