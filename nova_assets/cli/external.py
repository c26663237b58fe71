"""``nova external``: write the definitions of external tables, and keep them current with their sources."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import print_lines
from nova_assets.errors import DefinitionError, NotSupported
from nova_assets.model.channel import Channel
from nova_assets.model.database_table import is_database_url
from nova_assets.model.external_table import external as external_table
from nova_assets.model.external_table import is_metastore_address
from nova_assets.model.project import Project
from nova_assets.model.schema import Field
from nova_assets.plan.source_columns import find_column
from nova_assets.sql.datasets.dataset_bindings import dataset_queries_by_name
from nova_assets.sql.datasets.declarations import DatasetDeclarations, record_declarations
from nova_assets.sql.datasets.graph_builder import parse_external_views
from nova_assets.sql.statement.external_table import FIELD_BY_OPTION, ExternalView
from nova_assets.sql.statement.external_text import ExternalStatement, edit_columns, render_external_statement
from nova_assets.sql.text import SqlText
from nova_assets.store.external_definitions import (
    ExternalCheck,
    TableOfFiles,
    check_external,
    describe_database,
    describe_folder,
    describe_table_of_metastore,
)
from nova_assets.store.external_tables import absolute_location

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
        console.print(new.sql.rstrip(), soft_wrap=True)
    else:
        console.print(f"wrote {file}; next: nova refresh {new.name}", soft_wrap=True)


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
        print_lines(console, lines)


@dataclass(frozen=True, slots=True)
class NewExternal:
    """An external table whose file is to be written."""

    name: str
    sql: str


@dataclass(frozen=True, slots=True)
class CheckedExternal:
    """An external channel that was compared with its source.

    Args:
        view: its statement; None for a channel that is defined in Python.
    """

    result: ExternalCheck
    view: ExternalView | None
    is_written: bool = False

    @property
    def file(self) -> str | None:
        return None if self.view is None else self.view.text.name

    def as_json(self) -> dict[str, Any]:
        error = self.result.error
        return {
            "channel": self.result.channel,
            "file": self.file,
            "changes": [
                {
                    "column": c.column,
                    "kind": c.kind,
                    "declared": None if c.declared is None else str(c.declared),
                    "actual": None if c.actual is None else str(c.actual),
                    "breaking": c.breaking,
                }
                for c in self.result.changes
            ],
            "breaking": self.result.is_breaking,
            "written": self.is_written,
            "error": None if error is None else {"code": error.code, "what": error.what, "found": str(error.found)},
        }


def new_database_table(
    url: str, name: str | None, partitions: Sequence[str], options: Mapping[str, str]
) -> NewExternal:
    """The definition of a database table, with columns from the database.

    Raises:
        DefinitionError: an option is invalid, or a partition column does not exist.
        SourceUnavailable, SettingsError, NotSupported: the database cannot be read.
    """
    source = external_table(url, **options)  # type: ignore[arg-type]
    assert source.database is not None
    problems = source.problems()
    if problems:
        raise DefinitionError.of(problems, url)
    channel_name = name or _default_name((source.database.table or "").rpartition(".")[2])
    columns = describe_database(channel_name, source.database)
    chosen = {p: find_column(p, columns) for p in partitions}
    if missing := [p for p, column in chosen.items() if column is None]:
        raise DefinitionError(
            f"there is no partition column {missing[0]!r}", expected=", ".join(c.name for c in columns)
        )
    values = source.database.as_json()
    rendered = {o: str(values[f]) for o, f in FIELD_BY_OPTION.items() if f in values}
    fields = [Field(c.name, c.type) for c in columns]
    partition_columns = [c.name for c in chosen.values() if c is not None]
    return _rendered(ExternalStatement(channel_name, fields, partition_columns, "jdbc", rendered))


def new_folder(deployment: Deployment, location: str, name: str | None, done: str | None) -> NewExternal:
    """The definition of a folder of files, with columns from its newest files.

    Raises:
        SourceUnavailable, NotSupported, SchemaMismatch: the folder cannot be read as a table.
    """
    channel_name = name or _default_name(location.rstrip("/").rpartition("/")[2])
    with deployment.open_read_only(needs_catalog=False) as store:
        address = absolute_location(location, deployment.settings.root)
        found = describe_folder(store.engine, location, address)
    return _rendered(_statement_of_files(channel_name, found, location, done))


def new_metastore_table(location: str, name: str | None, done: str | None) -> NewExternal:
    """The definition of a table of a Hive metastore, with columns from the metastore.

    Raises:
        DefinitionError: the location is not the address of a table.
        SourceUnavailable: the metastore does not answer, or has no such table.
        NotSupported: the table cannot be read from its files alone.
    """
    source = external_table(location, success_file=done)
    if problems := source.problems():
        raise DefinitionError.of(problems, location)
    assert source.metastore_table is not None
    channel_name = name or _default_name(source.metastore_table.name)
    table = describe_table_of_metastore(source.metastore_table, channel_name)
    return _rendered(_statement_of_files(channel_name, table, location, done))


def check_external_channels(deployment: Deployment, names: Sequence[str]) -> list[CheckedExternal]:
    """Compare external channels of the project with their sources.

    Raises:
        DefinitionError: a name is not that of an external channel.
    """
    project, views = _load_project_and_views(deployment)
    channels = {c.name: c for c in project.channels if c.external is not None}
    channels |= {name: view.channel for name, view in views.items()}
    if unknown := [n for n in names if n not in channels]:
        raise DefinitionError(
            f"channel {unknown[0]!r} is not external",
            expected=", ".join(channels) or "(the project has no external channel)",
        )
    with deployment.open_read_only(needs_catalog=False) as store:
        return [CheckedExternal(_check(store.engine, channels[n], deployment), views.get(n)) for n in names or channels]


def write_changes(checked: CheckedExternal) -> CheckedExternal:
    """Update the columns in the file of a definition.

    Raises:
        NotSupported: the definition is in Python, or the file cannot be edited.
    """
    if not checked.result.changes:
        return checked
    if checked.view is None:
        raise NotSupported(
            f"channel {checked.result.channel!r} is defined in Python, which nova does not edit",
            found="; ".join(c.text for c in checked.result.changes),
            next="change schema= of the channel by hand",
        )
    text = checked.view.text
    # Only columns that differ are edited. A file that is generated anew would lose the author's clauses and comments.
    edited = edit_columns(text, checked.result.changes)
    if not parse_external_views([SqlText(text.name, edited)]):
        raise NotSupported(
            f"{text.name} would be no valid definition after the changes",
            found="; ".join(c.text for c in checked.result.changes),
            expected="a partition column in each clause that names it",
            next=f"edit {text.name} by hand",
        )
    Path(text.name).write_text(edited, encoding="utf-8")
    return replace(checked, is_written=True)


def _check(engine: Any, channel: Channel, deployment: Deployment) -> ExternalCheck:
    assert channel.external is not None
    address = absolute_location(channel.external.location, deployment.settings.root)
    return check_external(engine, channel, address)


def _load_project_and_views(deployment: Deployment) -> tuple[Project, dict[str, ExternalView]]:
    """The project, and the statements of its external tables.

    A project that an outdated definition makes invalid has statements all the same.
    """
    deployment.check_project_configured("nova external check")
    with record_declarations() as recorded:
        project = deployment.load_project() or Project()
    declarations = recorded.declarations or [
        DatasetDeclarations.from_graph(g)
        for g in {id(q.graph): q.graph for q in dataset_queries_by_name(project).values()}.values()
    ]
    views = parse_external_views([t for d in declarations for t in d.texts])
    return project, {v.name: v for v in views}


def _statement_of_files(name: str, table: TableOfFiles, location: str, done: str | None) -> ExternalStatement:
    return ExternalStatement(name, table.columns, table.partition_columns, table.format, {}, location, done)


def _rendered(statement: ExternalStatement) -> NewExternal:
    """The text of a statement, after a check that it can be read back."""
    sql = render_external_statement(statement)
    if not parse_external_views([SqlText(f"{statement.name}.sql", sql)]):
        raise NotSupported(
            f"the source has no definition that nova can read: {statement.name}", found=sql, next="write it by hand"
        )
    return NewExternal(statement.name, sql)


def _default_name(text: str) -> str:
    """Name of a channel from the name of a folder or table."""
    name = re.sub(r"\W+", "_", text.strip('"')).strip("_").lower()
    if not name or name[0].isdigit():
        raise DefinitionError(f"no name for the channel follows from {text!r}", next="--name NAME")
    return name
