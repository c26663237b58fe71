"""Batch of arrived files: accepted rows, quarantined records, and the outcome of each file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pyarrow as pa

from nova_assets.errors import EngineUnavailable, PartitionError, SchemaMismatch, SourceUnavailable
from nova_assets.formats import isolated_reader
from nova_assets.formats.derived_partitions import add_derived_partition_columns
from nova_assets.formats.input_file import InputFile
from nova_assets.formats.parsed_records import ParsedRecords, RefusedRecord, refused_record_from_row
from nova_assets.formats.readers import format_from_file_name
from nova_assets.formats.schema_fit import schema_of
from nova_assets.formats.value_checks import check_python_values
from nova_assets.masking import get_logger
from nova_assets.model.arrival import Arrival, ArrivalOutcome, ArrivalStatus
from nova_assets.model.arrow_types import to_arrow_schema
from nova_assets.model.channel import Channel
from nova_assets.model.file_source import Files, Format
from nova_assets.model.partition_rule import partition_of_row
from nova_assets.model.partitions import partition_values
from nova_assets.model.quarantine import QUARANTINE_COLUMNS, WHOLE_FILE_LINE, count_reasons
from nova_assets.model.schema import DELETED, Schema, parse_ddl
from nova_assets.model.schema_evolution import reconcile_schema
from nova_assets.nova_error import NovaError
from nova_assets.sources.inbox import Inbox, SourceFileChanged, SourceFileMissing
from nova_assets.sources.repeated_records import first_conflicting_file, settle_ties, undecided_key_reason

log = get_logger("nova_assets.ingest")

_SCHEMA_SAMPLE_FILES = 10
"""Number of files from which the schema is inferred, or more if none of these files has a schema."""

_MAX_REASONS = 3
"""Maximum number of bad records of an accepted file whose reasons are kept with the file's outcome."""

_MAX_REASON_CHARACTERS = 4000
"""Maximum length of a file's reason in characters."""


@dataclass
class ArrivalBatch:
    """Rows and outcomes of the arrivals that are read together.

    Args:
        channel: channel that receives the rows.
        source: declaration of the files.
        schema: schema to which the records must conform.
        now: time at which bad records are quarantined.
        sealed_at_by_group: time at which each sealed group was sealed. Later records of a group are rejected.
        accepted_tables: rows for the channel, one table per file.
        quarantine_rows: rows for the quarantine channel.
        outcomes: outcome of each file.
        has_left_files: whether files that were read are left to the next batch.
    """

    channel: Channel
    source: Files
    schema: Schema
    now: datetime
    sealed_at_by_group: Mapping[str, datetime] = field(default_factory=dict)
    accepted_tables: list[pa.Table] = field(default_factory=list)
    quarantine_rows: list[dict[str, Any]] = field(default_factory=list)
    outcomes: list[ArrivalOutcome] = field(default_factory=list)
    has_left_files: bool = False

    @property
    def row_count(self) -> int:
        return sum(o.rows for o in self.outcomes)

    @property
    def bad_record_count(self) -> int:
        return sum(o.bad for o in self.outcomes)

    @property
    def reason_counts(self) -> Mapping[str, int]:
        """Number of quarantined records by reason."""
        return count_reasons(str(row["reason"]) for row in self.quarantine_rows)

    @property
    def memory_bytes(self) -> int:
        """Size of the accepted rows in memory, in bytes."""
        return sum(t.nbytes for t in self.accepted_tables)

    @property
    def accepted_rows(self) -> pa.Table:
        """Rows for the channel. Of records with one key and equal ``order_by``, the last one decides."""
        if not self.accepted_tables:
            return self._empty_table()
        return settle_ties(pa.concat_tables(self.accepted_tables, promote_options="default"), self.channel.merge)

    def end_before_conflicting_file(self) -> None:
        """Leave the files that one block cannot hold together with earlier ones to the next batch."""
        file_number = first_conflicting_file(self.accepted_tables, self.channel.merge)
        if file_number is None:
            return
        with_rows = [n for n, outcome in enumerate(self.outcomes) if outcome.rows]
        kept = self.outcomes[: with_rows[file_number]]
        kept_files = {(o.arrival.path, o.arrival.version) for o in kept}
        self.outcomes = kept
        self.accepted_tables = self.accepted_tables[:file_number]
        self.quarantine_rows = [r for r in self.quarantine_rows if (r["file"], r["version"]) in kept_files]
        self.has_left_files = True

    @property
    def quarantine_table(self) -> pa.Table:
        """Rows for the quarantine channel."""
        return pa.Table.from_pylist(self.quarantine_rows, to_arrow_schema(parse_ddl(QUARANTINE_COLUMNS)))

    def read_arrival(self, inbox: Inbox, arrival: Arrival, other_versions: Sequence[ArrivalStatus] = ()) -> None:
        """Read one file and record its rows, its bad records and its outcome.

        Args:
            inbox: inbox from which the file is fetched.
            arrival: the file and its version.
            other_versions: status of the other versions at the file's path.

        Raises:
            SourceUnavailable, EngineUnavailable: the file cannot be read now.
        """
        if self.source.on_replaced == "refuse" and any(b.state == "taken" for b in other_versions):
            self._refuse_file(arrival, "the file was replaced after it had been taken")
            return
        format_ = self.source.format or format_from_file_name(arrival.path)
        if format_ is None:
            self._refuse_file(arrival, "its name does not say its format, and the source names none")
            return
        try:
            with inbox.fetch(arrival) as file:
                parsed = read_records(file, format_, self.channel, self.schema, self.sealed_at_by_group)
        except (SourceUnavailable, EngineUnavailable):
            raise
        except (SourceFileMissing, SourceFileChanged) as error:
            self.outcomes.append(ArrivalOutcome(arrival, "gone", reason=error.what))
        except NovaError as error:
            detail = "" if error.found is None else f" ({error.found})"
            self._refuse_file(arrival, f"{error.what.removeprefix(f'{arrival.path}: ')}{detail}")
        except Exception as error:  # libraries raise any error on damaged bytes, and a file must not block others
            log.exception("%s of %s cannot be read", arrival.path, self.channel.name)
            self._refuse_file(arrival, f"the file cannot be read: {type(error).__name__}: {error}")
        else:
            self._add_parsed_file(arrival, format_, parsed)

    def _add_parsed_file(self, arrival: Arrival, format_: Format, parsed: ParsedRecords) -> None:
        undecided = undecided_key_reason(parsed.table, self.channel.merge)
        if undecided is not None:
            self._refuse_file(arrival, undecided)
            return
        if parsed.table.num_rows:
            self.accepted_tables.append(parsed.table)
        self.quarantine_rows += [self._quarantine_row(arrival, format_, r) for r in parsed.refused]
        reason = (
            "; ".join(f"line {r.line}: {_replace_unprintable(r.reason)}" for r in parsed.refused[:_MAX_REASONS]) or None
        )
        self.outcomes.append(
            ArrivalOutcome(arrival, "taken", parsed.table.num_rows, len(parsed.refused), _truncate_reason(reason))
        )

    def _refuse_file(self, arrival: Arrival, reason: str) -> None:
        """Quarantine a whole file."""
        reason = _replace_unprintable(reason)
        self.quarantine_rows.append(
            self._quarantine_row(
                arrival, self.source.format or format_from_file_name(arrival.path), RefusedRecord(reason)
            )
        )
        self.outcomes.append(ArrivalOutcome(arrival, "refused", bad=1, reason=_truncate_reason(reason)))

    def _quarantine_row(self, arrival: Arrival, format_: Format | None, refused: RefusedRecord) -> dict[str, Any]:
        return {
            "file": arrival.path,
            "version": arrival.version,
            "line": WHOLE_FILE_LINE if refused.line is None else refused.line,
            "reason": refused.reason,
            "raw": refused.raw,
            "whole": refused.whole,
            "header": refused.header,
            "format": refused.format or format_,
            "set_aside_at": self.now,
        }

    def _empty_table(self) -> pa.Table:
        return to_arrow_schema(self.schema.with_all_nullable()).empty_table()


def _replace_unprintable(text: str) -> str:
    """Text with blanks instead of unprintable characters, because PostgreSQL rejects NUL."""
    return "".join(c if c.isprintable() else " " for c in text)


def _truncate_reason(reason: str | None) -> str | None:
    return None if reason is None else reason[:_MAX_REASON_CHARACTERS]


def infer_schema(inbox: Inbox, channel: Channel, source: Files, arrivals: Iterable[Arrival]) -> Schema:
    """Infer a channel's schema from the first files. Later files must conform to this schema.

    Raises:
        SchemaMismatch: no file has a schema, or the files contradict each other.
        SourceUnavailable, EngineUnavailable: a file cannot be read now.
    """
    schema: Schema | None = None
    errors: list[str] = []
    for n, arrival in enumerate(arrivals):
        if schema is not None and n >= _SCHEMA_SAMPLE_FILES:
            break
        format_ = source.format or format_from_file_name(arrival.path)
        if format_ is None:
            continue
        if format_ == "text":
            return parse_ddl("line string")
        try:
            with inbox.fetch(arrival) as file:
                table = add_derived_partition_columns(
                    isolated_reader.read_table(file, format_, None), channel.partitions, None
                )
            file_schema = schema_of(table).without_columns(DELETED)
            schema = file_schema if schema is None else reconcile_schema("", schema, file_schema, "evolve")
        except NovaError as error:
            if isinstance(error, SourceUnavailable | EngineUnavailable):
                raise
            errors.append(error.what)
    if schema is None:
        raise SchemaMismatch(
            "the channel declares no schema, and the first files do not have one either",
            found="; ".join(errors[:3]) or "no file",
            expected="at least one valid file",
            next='declare the channel with schema="..."',
        )
    return schema


def read_records(
    file: InputFile,
    format_: Format,
    channel: Channel,
    schema: Schema,
    sealed_at_by_group: Mapping[str, datetime] | None = None,
) -> ParsedRecords:
    """Read a file into rows that the channel accepts, with derived partition columns, and refused records.

    Args:
        file: the file.
        format_: format of the file.
        channel: channel that receives the rows.
        schema: schema to which the records must conform.
        sealed_at_by_group: time at which each sealed group was sealed. Later records of a group are rejected.

    Raises:
        NovaError: no record of the file can be accepted.
    """
    derived = [d.column for d in channel.partitions if d.of is not None]
    drop_undeclared = channel.source is not None and channel.source.on_extra_columns == "drop"
    parsed = isolated_reader.read_valid_records(
        file, format_, schema.without_columns(*derived), drop_undeclared=drop_undeclared
    )
    table = add_derived_partition_columns(parsed.table, channel.partitions, schema)
    return _refuse_invalid_rows(replace(parsed, table=table), channel, schema, sealed_at_by_group or {})


def _refuse_invalid_rows(
    parsed: ParsedRecords, channel: Channel, schema: Schema, sealed_at_by_group: Mapping[str, datetime]
) -> ParsedRecords:
    """Move rows that the channel cannot accept to the refused records.

    Such rows have a null in a required column, a deletion mark for an unkeyed channel, or no valid partition.
    """
    reason_by_row = _find_invalid_rows(parsed.table, channel, schema, sealed_at_by_group)
    if not channel.merge.has_deletions and DELETED in parsed.table.column_names:
        parsed = replace(parsed, table=parsed.table.drop_columns([DELETED]))
    if not reason_by_row:
        return parsed
    valid_indexes = [n for n in range(parsed.table.num_rows) if n not in reason_by_row]
    source_table = parsed.table.drop_columns([d.column for d in channel.partitions if d.of is not None])
    check_python_values(source_table)
    rows = source_table.take(pa.array(sorted(reason_by_row), pa.int64())).to_pylist()
    refused = [
        refused_record_from_row(reason_by_row[n], parsed.line_numbers[n], row)
        for n, row in zip(sorted(reason_by_row), rows, strict=True)
    ]
    numbers = [parsed.line_numbers[n] for n in valid_indexes]
    all_refused = sorted([*parsed.refused, *refused], key=lambda r: r.line or WHOLE_FILE_LINE)
    return ParsedRecords(parsed.table.take(pa.array(valid_indexes, pa.int64())), numbers, tuple(all_refused))


def _find_invalid_rows(
    table: pa.Table, channel: Channel, schema: Schema, sealed_at_by_group: Mapping[str, datetime]
) -> Mapping[int, str]:
    """Reason of each invalid row, by row index."""
    reason_by_row: dict[int, str] = {}
    required_columns = [*channel.merge.key, *(f.name for f in schema.fields if not f.nullable)]
    for name in dict.fromkeys(required_columns):
        for n in table.column(name).is_null().to_numpy().nonzero()[0] if name in table.column_names else ():
            reason_by_row.setdefault(int(n), f"column {name!r} is null")
    if DELETED in table.column_names and not channel.merge.has_deletions:
        for n in table.column(DELETED).is_valid().to_numpy().nonzero()[0]:
            reason_by_row.setdefault(
                int(n), f"{DELETED!r} is set, but rows cannot be deleted from a channel without a key"
            )
    if channel.partitions:
        columns = list(channel.partition_columns)
        check_python_values(table.select(columns))
        partition_rows = table.group_by(columns).aggregate([]).to_pylist()
        reason_by_partition = {
            tuple(p.values()): _partition_refusal_reason(channel, p, sealed_at_by_group) for p in partition_rows
        }
        if any(reason_by_partition.values()):
            for n, row in enumerate(table.select(columns).to_pylist()):
                if reason := reason_by_partition[tuple(row[c] for c in columns)]:
                    reason_by_row.setdefault(n, reason)
    return reason_by_row


def _partition_refusal_reason(
    channel: Channel, row: Mapping[str, Any], sealed_at_by_group: Mapping[str, datetime]
) -> str | None:
    """Reason why a row belongs to no partition or to a sealed group; None for a valid row."""
    try:
        partition = partition_of_row(channel.partitions, row, channel.name)
    except PartitionError as error:
        return f"{error.what}; expected {error.expected}"
    if channel.seal is None or not sealed_at_by_group:
        return None
    group = partition_values(partition)[channel.seal.by]
    sealed_at = sealed_at_by_group.get(group or "")
    return (
        None
        if sealed_at is None
        else f"late: {channel.seal.by}={group} was sealed at {sealed_at:%Y-%m-%d %H:%M:%S} UTC"
    )
