"""The function of a task that maintains the result of a query."""

from __future__ import annotations

from typing import Any

from nova_assets.model.channel import Channel
from nova_assets.model.edge import Consumes
from nova_assets.model.task import Context
from nova_assets.sql.incremental.maintained_query import MaintainedQuery
from nova_assets.sql.incremental.maintenance import STORED_ROWS
from nova_assets.sql.incremental.maintenance_run import MaintenanceRun
from nova_assets.sql.query.spark_confirmation import convert_spark_rejections, explain_waiting_columns


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
