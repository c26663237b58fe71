"""A batch of arrivals: the rows that go onto the channel, those that are set aside, and what became of each file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pyarrow as pa

from nova_assets.errors import EngineUnavailable, NovaError, PartitionError, SchemaMismatch, SourceUnavailable
from nova_assets.formats import isolated_reader
from nova_assets.formats.derived_partitions import with_derived
from nova_assets.formats.input_file import File
from nova_assets.formats.read_outcome import Parsed, Refused, refused_row
from nova_assets.formats.readers import format_of
from nova_assets.formats.schema_fit import schema_of
from nova_assets.masking import get_logger
from nova_assets.model.arrival import Arrival, ArrivalStatus, Taken
from nova_assets.model.arrow_types import to_arrow
from nova_assets.model.channel import Channel
from nova_assets.model.file_format import Format
from nova_assets.model.file_source import Files
from nova_assets.model.partition_of_row import partition_of
from nova_assets.model.partitions import partition_values
from nova_assets.model.quarantine import COLUMNS, WHOLE_FILE, count_reasons
from nova_assets.model.schema import DELETED, Schema, parse_ddl
from nova_assets.model.schema_evolution import reconcile
from nova_assets.sources.inbox import Changed, Gone, Inbox

log = get_logger("nova_assets.ingest")

_LOOKED_AT = 10

_REASONS = 3
"""Bad records of a file that was taken whose reasons are kept beside their number."""

_LONGEST_REASON = 4000
"""Characters."""
"""So many files are looked at to find out the schema; more, if none of these says one."""


@dataclass
class Batch:
    """What was read of some arrivals.

    Args:
        schema: what they are held to.
        now: when.
        sealed: group -> since when nothing more is taken for it.
    """

    channel: Channel
    source: Files
    schema: Schema
    now: datetime
    sealed: Mapping[str, datetime] = field(default_factory=dict)
    tables: list[pa.Table] = field(default_factory=list)
    aside: list[dict[str, Any]] = field(default_factory=list)
    takes: list[Taken] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(t.rows for t in self.takes)

    @property
    def bad(self) -> int:
        return sum(t.bad for t in self.takes)

    @property
    def why(self) -> Mapping[str, int]:
        """Reason -> how many records are set aside for it."""
        return count_reasons(str(row["reason"]) for row in self.aside)

    @property
    def bytes(self) -> int:
        """In memory."""
        return sum(t.nbytes for t in self.tables)

    @property
    def good(self) -> pa.Table:
        """The rows that go onto the channel."""
        return pa.concat_tables(self.tables, promote_options="default") if self.tables else self._empty()

    @property
    def set_aside(self) -> pa.Table:
        """The rows that go into its quarantine."""
        return pa.Table.from_pylist(self.aside, to_arrow(parse_ddl(COLUMNS)))

    def read(self, inbox: Inbox, arrival: Arrival, before: Sequence[ArrivalStatus] = ()) -> None:
        """Read one file.

        Args:
            before: other versions at its path.

        Raises:
            SourceUnavailable, EngineUnavailable: nothing can be said of it now.
        """
        if self.source.replaced == "refuse" and any(b.state == "taken" for b in before):
            self._refuse(arrival, "the file was replaced after it had been taken")
            return
        format_ = self.source.format or format_of(arrival.path)
        if format_ is None:
            self._refuse(arrival, "its name does not say its format, and the source names none")
            return
        try:
            with inbox.fetch(arrival) as file:
                parsed = read_records(file, format_, self.channel, self.schema, self.sealed)
        except (SourceUnavailable, EngineUnavailable):
            raise
        except (Gone, Changed) as error:
            self.takes.append(Taken(arrival, "gone", reason=error.what))
        except NovaError as error:
            found = "" if error.found is None else f" ({error.found})"
            self._refuse(arrival, f"{error.what.removeprefix(f'{arrival.path}: ')}{found}")
        except Exception as error:  # whatever a library makes of strange bytes: one file keeps no other waiting
            log.exception("%s of %s cannot be read", arrival.path, self.channel.name)
            self._refuse(arrival, f"the file cannot be read: {type(error).__name__}: {error}")
        else:
            self._take(arrival, format_, parsed)

    def _take(self, arrival: Arrival, format_: Format, parsed: Parsed) -> None:
        if parsed.table.num_rows:
            self.tables.append(parsed.table)
        self.aside += [self._row(arrival, format_, r) for r in parsed.refused]
        reason = "; ".join(f"line {r.line}: {_printable(r.reason)}" for r in parsed.refused[:_REASONS]) or None
        self.takes.append(Taken(arrival, "taken", parsed.table.num_rows, len(parsed.refused), _cut(reason)))

    def _refuse(self, arrival: Arrival, reason: str) -> None:
        """All of a file."""
        reason = _printable(reason)
        self.aside.append(self._row(arrival, self.source.format or format_of(arrival.path), Refused(reason)))
        self.takes.append(Taken(arrival, "refused", bad=1, reason=_cut(reason)))

    def _row(self, arrival: Arrival, format_: Format | None, refused: Refused) -> dict[str, Any]:
        return {
            "file": arrival.path,
            "version": arrival.version,
            "line": WHOLE_FILE if refused.line is None else refused.line,
            "reason": refused.reason,
            "raw": refused.raw,
            "whole": refused.whole,
            "header": refused.header,
            "format": refused.format or format_,
            "set_aside_at": self.now,
        }

    def _empty(self) -> pa.Table:
        return to_arrow(self.schema.relaxed()).empty_table()


def _printable(reason: str) -> str:
    """PostgreSQL takes no NUL."""
    return "".join(c if c.isprintable() else " " for c in reason)


def _cut(reason: str | None) -> str | None:
    return None if reason is None else reason[:_LONGEST_REASON]


def infer(inbox: Inbox, channel: Channel, source: Files, waiting: Iterable[Arrival]) -> Schema:
    """The schema of the first files that say one; what arrives later is held to it.

    Raises:
        SchemaMismatch: none of them does, or they contradict each other.
    """
    found: Schema | None = None
    met: list[str] = []
    for n, arrival in enumerate(waiting):
        if found is not None and n >= _LOOKED_AT:
            break
        format_ = source.format or format_of(arrival.path)
        if format_ is None:
            continue
        if format_ == "text":
            return parse_ddl("line string")
        try:
            with inbox.fetch(arrival) as file:
                table = with_derived(isolated_reader.read(file, format_, None), channel.partitions, None)
            given = schema_of(table).without(DELETED)
            found = given if found is None else reconcile("", found, given, "evolve")
        except NovaError as error:
            if isinstance(error, SourceUnavailable | EngineUnavailable):
                raise
            met.append(error.what)
    if found is None:
        raise SchemaMismatch(
            "no schema is declared, and none of the first files says one",
            found="; ".join(met[:3]) or "no file",
            expected="one file that is right, at least",
            next='declare the channel with schema="..."',
        )
    return found


def read_records(
    file: File, format_: Format, channel: Channel, schema: Schema, sealed: Mapping[str, datetime] | None = None
) -> Parsed:
    """The rows of a file that the channel can take, with the columns that follow from others; and those that it cannot.

    Args:
        sealed: group -> since when nothing more is taken for it.

    Raises:
        NovaError: nothing of it can be taken.
    """
    derived = [d.column for d in channel.partitions if d.of is not None]
    drop = channel.source is not None and channel.source.extra == "drop"
    parsed = isolated_reader.read_what_is_right(file, format_, schema.without(*derived), drop=drop)
    table = with_derived(parsed.table, channel.partitions, schema)
    return _fitting(replace(parsed, table=table), channel, schema, sealed or {})


def _fitting(parsed: Parsed, channel: Channel, schema: Schema, sealed: Mapping[str, datetime]) -> Parsed:
    """What was read, without the rows that the channel cannot take: nulls where there may be none, and values that no
    partition has."""
    wrong = _wrong(parsed.table, channel, schema, sealed)
    if not channel.merge.keyed and DELETED in parsed.table.column_names:
        parsed = replace(parsed, table=parsed.table.drop_columns([DELETED]))
    if not wrong:
        return parsed
    kept = [n for n in range(parsed.table.num_rows) if n not in wrong]
    given = parsed.table.drop_columns([d.column for d in channel.partitions if d.of is not None])
    rows = given.take(pa.array(sorted(wrong), pa.int64())).to_pylist()
    refused = [refused_row(wrong[n], parsed.numbers[n], row) for n, row in zip(sorted(wrong), rows, strict=True)]
    numbers = [parsed.numbers[n] for n in kept]
    every = sorted([*parsed.refused, *refused], key=lambda r: r.line or WHOLE_FILE)
    return Parsed(parsed.table.take(pa.array(kept, pa.int64())), numbers, tuple(every))


def _wrong(table: pa.Table, channel: Channel, schema: Schema, sealed: Mapping[str, datetime]) -> Mapping[int, str]:
    """Row -> what is wrong with it."""
    found: dict[int, str] = {}
    never = [*channel.merge.key, *(f.name for f in schema.fields if not f.nullable)]
    for name in dict.fromkeys(never):
        for n in table.column(name).is_null().to_numpy().nonzero()[0] if name in table.column_names else ():
            found.setdefault(int(n), f"column {name!r} is null")
    if DELETED in table.column_names and not channel.merge.keyed:
        for n in table.column(DELETED).is_valid().to_numpy().nonzero()[0]:
            found.setdefault(int(n), f"it says {DELETED!r}, and nothing can be deleted from a channel without a key")
    if channel.partitions:
        columns = list(channel.partition_columns)
        found_places = table.group_by(columns).aggregate([]).to_pylist()
        places = {tuple(p.values()): _misplaced(channel, p, sealed) for p in found_places}
        if any(places.values()):
            for n, row in enumerate(table.select(columns).to_pylist()):
                if reason := places[tuple(row[c] for c in columns)]:
                    found.setdefault(n, reason)
    return found


def _misplaced(channel: Channel, row: Mapping[str, Any], sealed: Mapping[str, datetime]) -> str | None:
    """Why a row can be in no partition, or not any more."""
    try:
        partition = partition_of(channel.partitions, row, channel.name)
    except PartitionError as error:
        return f"{error.what}; expected {error.expected}"
    if channel.seal is None or not sealed:
        return None
    group = partition_values(partition)[channel.seal.by]
    since = sealed.get(group or "")
    return None if since is None else f"late: {channel.seal.by}={group} was sealed at {since:%Y-%m-%d %H:%M:%S} UTC"
