"""Records of stored results: a later execution adds changes to stored rows only if they are the result of its query."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlglot import exp
from sqlglot.optimizer.normalize_identifiers import normalize_identifiers

from nova_assets.model.channel import Channel
from nova_assets.model.merge import MergeModel
from nova_assets.model.task import Context

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
class ResultRecord:
    """The result that an execution of a maintained query leaves in its channel.

    Args:
        query: fingerprint of the query. Layout, comments and the case of names and keywords do not matter.
        settings: fingerprint of the session's settings; empty if they are not known.
        channel: channel of the result.
        head: version of the channel that the execution read.
        inputs: dataset -> its channel, and the version of this channel that the execution read.
    """

    query: str
    settings: str
    channel: str
    head: int
    inputs: Mapping[str, tuple[str, int]]

    @staticmethod
    def of_execution(ctx: Context, tree: exp.Query, target: Channel, datasets: Iterable[str]) -> ResultRecord:
        """The record of the running execution."""
        settings = _fingerprint(*(f"{k}={v}" for k, v in _read_settings(ctx).items()))
        channels = {dataset: ctx.channels[dataset].name for dataset in datasets}
        inputs = {dataset: (channel, ctx.pins.get(channel, 0)) for dataset, channel in channels.items()}
        return ResultRecord(query_fingerprint(tree), settings, target.name, ctx.pins.get(target.name, 0), inputs)

    def reason_to_compare(
        self,
        last_reports: Iterable[Mapping[str, Any]],
        cursors: Mapping[str, int | None],
        merge: MergeModel,
        is_written_by_others: Callable[[int], bool],
    ) -> str | None:
        """Why the stored rows may not be the result of the same query over the rows that were read; None if they are.

        A channel without deletions only gets added rows, which do not depend on the stored rows. So other writers do
        not matter there.

        Args:
            last_reports: what the tasks of the binding reported in its last execution.
            cursors: channel -> version up to which the binding has read it.
            merge: merge model of the channel.
            is_written_by_others: whether anything else has written to the channel after a version.
        """
        records = {r[_REPORT_KEY]["channel"]: r[_REPORT_KEY] for r in last_reports if _REPORT_KEY in r}
        last = records.get(self.channel)
        if last is None and records:
            return f"the last execution wrote its result to channel {min(records)}"
        if last is None:  # another task, or a version of nova that recorded nothing
            return "the last execution did not record its query" if merge.has_deletions else None
        if last["query"] != self.query:
            return "the query has changed"
        if self.settings and last["settings"] != self.settings:
            return "a setting of the Spark session has changed"
        for dataset, (channel, _) in self.inputs.items():
            if last.get("inputs", {}).get(dataset) != [channel, cursors.get(channel)]:
                return f"the last execution did not read {dataset} from channel {channel} up to the cursor"
        if merge.has_deletions and is_written_by_others(last["head"]):
            return f"another writer has changed channel {self.channel}"
        return None

    def report(self, ctx: Context) -> None:
        """Record the result with the commit."""
        ctx.report[_REPORT_KEY] = {**asdict(self), "inputs": {d: list(i) for d, i in self.inputs.items()}}


def query_fingerprint(tree: exp.Query) -> str:
    """Fingerprint of a query. Layout, comments and the case of names and keywords do not matter."""
    return _fingerprint(normalize_identifiers(tree.copy(), dialect="spark").sql("spark", comments=False))


def _fingerprint(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def _read_settings(ctx: Context) -> dict[str, Any]:
    """Settings of the session; empty in a unit test without Spark."""
    return {} if ctx.spark is None else {name: ctx.spark.conf.get(name) for name in _SETTINGS}
