"""Tasks that keep the result of a query up to date: each execution computes the change of the result from the changes
of the channels that the query reads."""

from __future__ import annotations

from typing import Any, Literal

from nova_assets.errors import DefinitionError
from nova_assets.model.channel import Channel
from nova_assets.model.edge import Consumes, Produces
from nova_assets.model.names import check_name
from nova_assets.model.task import Context, Task
from nova_assets.sql.incremental.frozen_rows import FrozenRows
from nova_assets.sql.incremental.maintained_query import MaintainedQuery
from nova_assets.sql.incremental.maintenance import STORED_ROWS
from nova_assets.sql.incremental.maintenance_run import MaintenanceRun
from nova_assets.sql.query.spark_confirmation import convert_spark_rejections, explain_waiting_columns
from nova_assets.sql.statement.dataset_options import parse_options
from nova_assets.sql.text import SqlText
from nova_assets.suggestions import did_you_mean


def incremental(
    name: str,
    sql: str,
    *,
    produces: Produces,
    refresh: Literal["incremental", "auto"] = "incremental",
    float: Literal["exact", "fast"] = "exact",  # shadows the builtin, since users name the type
    retries: int = 0,
    retry_delay: float = 0.0,
) -> Task:
    """A task that keeps the result of a Spark SQL query in a channel, and pays for the changes only.

        totals = nova.Channel("totals", merge=nova.Upsert(key="site"))
        count = nova.incremental(
            "count", "SELECT site, COUNT(*) AS articles FROM articles GROUP BY site", produces=nova.delta(totals)
        )

    Inserts, updates and deletions in any channel of the query pass through the query as changes. After each execution,
    the channel has the rows that recomputing the query would give (R12). The first execution computes the whole query.
    If the query has a part for which there is no cheaper rule, each execution computes the whole query, compares the
    result with the stored rows, and writes the difference. If the changes are estimated to cost more than three times
    as much as the whole query, an execution computes the whole query, and its result replaces the stored rows.

    The channel is an ``Upsert`` channel. Its key identifies the rows of the result, for example the columns of
    ``GROUP BY``. If all inputs are ``Append`` channels, and added rows only add rows to the result, the channel may be
    an ``Append`` channel. The query refers to the binding's parameters as ``:name``. If the query has changed, or if
    something else has written to the channel, the next execution computes the whole query, and corrects the stored
    rows.

    ``FROZEN WHERE condition`` before the query names rows that are never made again, for example
    ``FROZEN WHERE day < CURRENT_DATE - INTERVAL 30 DAYS SELECT day, ...``. The condition names columns of the key.
    Changes of these rows are left out, and reported.

    Args:
        name: the task's name.
        sql: one SELECT statement.
        produces: the output edge, ``nova.delta(channel)``.
        refresh: with ``"incremental"``, executions prefer changes, as above. With ``"auto"``, each execution chooses
            what is estimated to cost less: the changes, or the whole query.
        float: how sums and averages of floating-point numbers are maintained. With ``"exact"``, groups that changed are
            computed again. With ``"fast"``, the change is added to the stored sum. Such a sum drifts: each change can
            add an error in the last digits of the greatest sum that the group ever had.
        retries, retry_delay: as for ``nova.task``.

    Raises:
        SqlError: the query cannot be parsed, or depends on more than its data, such as a clock.
        DefinitionError: the output edge is not a delta, the query reads its own result, or ``refresh`` or ``float`` is
            unknown.
    """
    if float not in ("exact", "fast"):
        raise DefinitionError(f"task {name!r}: float={float!r} is not a policy", expected="exact or fast")
    if refresh not in ("incremental", "auto"):
        raise DefinitionError(
            f"task {name!r}: refresh={refresh!r} is not a policy{did_you_mean(str(refresh), ('incremental', 'auto'))}",
            expected="incremental or auto",
        )
    text, frozen = _split_frozen(SqlText(f"task {name}", sql))
    query = IncrementalQuery(
        text,
        produces.port,
        prefers_changes=refresh == "incremental",
        frozen=frozen,
        adds_floats=float == "fast",
    )
    if produces.kind != "delta":
        raise DefinitionError(
            f"task {name!r} writes changes of its result, not a base", expected=f"produces=nova.delta({produces.port})"
        )
    if produces.port in query.datasets:
        raise DefinitionError(f"task {name!r} reads its own result {produces.port!r}", expected="another channel")
    return Task(
        name=check_name(name, "a task"),
        function=query,
        consumes=query.input_edges(produces.channel),
        produces=(produces,),
        retries=retries,
        retry_delay=retry_delay,
        deterministic=True,
        can_replace=True,
        description=sql.strip(),
    )


def _split_frozen(text: SqlText) -> tuple[SqlText, FrozenRows | None]:
    """The query without its options, and its frozen rows.

    Raises:
        SqlError: the condition is invalid, or the query has options that the arguments of the task give.
    """
    options = parse_options(text)
    if options.checks:
        expected = "nova.Workflowette(..., checks=[nova.checks....]) for a task"
        raise text.error("CHECK and WARN belong to datasets", options.span, expected=expected)
    if options.refresh or options.freshness:
        expected = "FROZEN WHERE only, and nova.incremental(..., refresh=...)"
        raise text.error("REFRESH and FRESHNESS belong to datasets", options.span, expected=expected)
    frozen = None if options.frozen_span is None else FrozenRows.parse(text, options.frozen_span)
    return options.blank_out(text), frozen


class IncrementalQuery(MaintainedQuery):
    """Function of a task that maintains the result of a query. The arguments are those of ``MaintainedQuery``."""

    def input_edges(self, channel: Channel | None = None) -> tuple[Consumes, ...]:
        """Input edges of the task: the changes of each dataset, and the stored rows of the output port.

        Args:
            channel: channel of the output port, if the edge names it.
        """
        has_cursor = self.scope is None
        return (
            *(Consumes(d, "changes", d, by_name=True, has_cursor=has_cursor) for d in self.datasets),
            Consumes(self.output_port, "all", STORED_ROWS, channel, is_lazy=True),
        )

    def __call__(self, ctx: Context, **inputs: Any) -> Any:
        load_stored = inputs.pop(STORED_ROWS)
        with explain_waiting_columns(ctx, self.text.name, self.datasets), convert_spark_rejections(self.text):
            return MaintenanceRun(self, ctx, inputs, load_stored).compute_output()

    def as_json(self) -> dict[str, Any]:
        optional = {"frozen": None if self.frozen is None else self.frozen.sql, "adds_floats": self.adds_floats}
        required = {"sql": self.text.sql.strip(), "prefers_changes": self.prefers_changes}
        return required | {name: value for name, value in optional.items() if value}
