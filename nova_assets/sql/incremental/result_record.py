"""Records of stored results: a later execution adds changes to stored rows only if they are the result of its query."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlglot.optimizer.normalize_identifiers import normalize_identifiers

from nova_assets.model.channel import Channel
from nova_assets.model.merge import MergeModel
from nova_assets.model.schema import Schema
from nova_assets.model.task import Context, LastExecution
from nova_assets.sql.incremental.maintained_query import MaintainedQuery

_REPORT_KEY = "result"

_SETTINGS = (
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
    "spark.sql.caseSensitive",
    "spark.sql.decimalOperations.allowPrecisionLoss",
    "spark.sql.legacy.timeParserPolicy",
    "spark.sql.legacy.sizeOfNull",
    "spark.sql.mapKeyDedupPolicy",
)
"""Settings of a Spark session on which values of expressions depend."""


@dataclass(frozen=True)
class HiddenColumns:
    """Hidden columns of stored rows, in which the accumulators of their groups are.

    Args:
        accumulators: fingerprint of their meaning.
        token: part of their names.
        is_complete: whether every row has them.
    """

    accumulators: str
    token: str
    is_complete: bool


@dataclass(frozen=True)
class ResultRecord:
    """The result that an execution of a maintained query leaves in its channel.

    Args:
        query: fingerprint of the query, of its frozen rows, and of the values of its variables. Layout, comments and
            the case of names and keywords do not matter.
        settings: fingerprint of the session's settings; empty if they are not known.
        channel: channel of the result.
        head: version of the channel that the execution read.
        inputs: dataset -> its channel, and the version of this channel that the execution read.
        partitions: dataset -> fingerprint of the partitions that the execution read. Only for a dataset's partition,
            whose query determines which partitions it reads.
        hidden: the hidden columns of the stored rows; None if no row has hidden columns.
        columns: channel -> fingerprint of the identities of its columns, as the execution read them. A column that was
            dropped and declared again has its old name, and no values in the rows that were stored before. Channels
            without rows are left out.
        frozen_until: time up to which ``FROZEN WHERE`` was evaluated, in ISO 8601; empty without frozen rows.
    """

    query: str
    settings: str
    channel: str
    head: int
    inputs: Mapping[str, tuple[str, int]]
    partitions: Mapping[str, str] = field(default_factory=dict)
    hidden: HiddenColumns | None = None
    frozen_until: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of_execution(
        ctx: Context,
        query: MaintainedQuery,
        target: Channel,
        values: Mapping[str, Any],
        partitions: Mapping[str, Iterable[str]],
    ) -> ResultRecord:
        """The record of the running execution.

        Args:
            values: values of the query's variables.
            partitions: dataset -> the partitions that the execution reads.
        """
        settings = _fingerprint(*(f"{k}={v}" for k, v in _read_settings(ctx).items()))
        channels = {dataset: ctx.channels[dataset].name for dataset in query.datasets}
        inputs = {dataset: (channel, ctx.pins.get(channel, 0)) for dataset, channel in channels.items()}
        read = [channel for channel in (*channels.values(), target.name) if ctx.pins.get(channel)]
        columns = fingerprint_columns({channel: ctx.schemas.get(channel) for channel in read})
        return ResultRecord(
            fingerprint_query(query, values),
            settings,
            target.name,
            ctx.pins.get(target.name, 0),
            inputs,
            fingerprint_partitions(partitions),
            columns=columns,
        )

    def reason_to_compare(
        self,
        last_execution: LastExecution,
        cursors: Mapping[str, int | None],
        partitions_at_cursors: Mapping[str, Iterable[str]],
        merge: MergeModel,
        is_written_by_others: Callable[[int], bool],
    ) -> str | None:
        """Why the stored rows may not be the result of the same query over the rows that were read; None if they are.

        A channel without deletions only gets added rows, which do not depend on the stored rows. So other writers do
        not matter there.

        Args:
            last_execution: what the binding recorded in its last execution.
            cursors: channel -> version up to which the binding has read it.
            partitions_at_cursors: dataset -> those partitions that the execution reads and that existed at the cursor.
                If the last execution has read other partitions, rows of the difference are not among the changes.
            merge: merge model of the channel.
            is_written_by_others: whether anything else has written to the channel after a version.
        """
        records = _records_by_channel(last_execution.reports)
        last = records.get(self.channel)
        if last is None and records:
            return f"the last execution wrote its result to channel {min(records)}"
        if last is None:  # another task, or a version of nova that recorded nothing
            return "the last execution did not record its query" if merge.has_deletions else None
        if last["query"] != self.query:
            return "the query has changed"
        if self.settings and last["settings"] != self.settings:
            return "a setting of the Spark session has changed"
        for channel, fingerprint in self.columns.items():
            if last.get("columns", {}).get(channel, fingerprint) != fingerprint:
                is_result = channel == self.channel
                return (
                    f"columns of {channel} were declared again"
                    if is_result
                    else "the definition of an input has changed"
                )
        for dataset, (channel, _) in self.inputs.items():
            last_channel, version = last.get("inputs", {}).get(dataset, ("", None))
            version = last_execution.written_heads.get(channel, version)  # it also read what it wrote itself
            if (last_channel, version) != (channel, cursors.get(channel)):
                return f"the last execution did not read {dataset} from channel {channel} up to the cursor"
        for dataset, fingerprint in fingerprint_partitions(partitions_at_cursors).items():
            if last.get("partitions", {}).get(dataset) != fingerprint:
                return f"the last execution read other partitions of {dataset}"
        if merge.has_deletions and is_written_by_others(last["head"]):
            return f"another writer has changed channel {self.channel}"
        return None

    def with_stored_columns(self, schema: Schema) -> ResultRecord:
        """The record with the columns under which the rows of the result are stored."""
        return replace(self, columns={**self.columns, **fingerprint_columns({self.channel: schema})})

    def report(self, ctx: Context) -> None:
        """Record the result with the commit."""
        ctx.report[_REPORT_KEY] = {**asdict(self), "inputs": {d: list(i) for d, i in self.inputs.items()}}


def find_hidden_columns(last_reports: Iterable[Mapping[str, Any]], channel: str) -> HiddenColumns | None:
    """The hidden columns of a stored result; None if its rows have none.

    Args:
        last_reports: what the tasks of the binding reported in its last execution.
        channel: channel of the result.
    """
    hidden = _records_by_channel(last_reports).get(channel, {}).get("hidden")
    return None if hidden is None else HiddenColumns(**hidden)


def _records_by_channel(reports: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {r[_REPORT_KEY]["channel"]: r[_REPORT_KEY] for r in reports if _REPORT_KEY in r}


def find_frozen_until(last_reports: Iterable[Mapping[str, Any]], channel: str) -> datetime | None:
    """Time up to which ``FROZEN WHERE`` was evaluated for a stored result; None if it was not. Arguments as for
    ``find_hidden_columns``.
    """
    until = _records_by_channel(last_reports).get(channel, {}).get("frozen_until")
    return datetime.fromisoformat(until) if until else None


def fingerprint_query(query: MaintainedQuery, values: Mapping[str, Any]) -> str:
    """Fingerprint of a maintained query, of its frozen rows, and of the values of its variables."""
    sql = normalize_identifiers(query.tree.copy(), dialect="spark").sql("spark", comments=False)
    frozen_rows = [] if query.frozen is None else [f"FROZEN WHERE {query.frozen.sql}"]
    return _fingerprint(sql, *frozen_rows, *(f"{name}={values[name]!r}" for name in sorted(values)))


def fingerprint_partitions(partitions: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Dataset -> fingerprint of the names of its partitions."""
    return {dataset: _fingerprint(*sorted(names)) for dataset, names in partitions.items()}


def fingerprint_columns(schemas: Mapping[str, Schema | None]) -> dict[str, str]:
    """Channel -> fingerprint of the names and identities of its columns. Channels without columns are left out."""
    return {
        channel: _fingerprint(*(f"{f.name}={f.identity}" for f in schema.fields))
        for channel, schema in schemas.items()
        if schema is not None
    }


def _fingerprint(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def _read_settings(ctx: Context) -> dict[str, Any]:
    """Settings of the session; empty in a unit test without Spark."""
    return {} if ctx.spark is None else {name: ctx.spark.conf.get(name) for name in _SETTINGS}
