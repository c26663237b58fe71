"""How a dataset is brought up to date after its inputs have changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from nova_assets.sql.incremental.operator_text import describe_operators
from nova_assets.sql.incremental.operators import Operator

Refresh: TypeAlias = Literal["full", "auto", "incremental"]
"""How a dataset is brought up to date. ``full``: its query is computed again. ``incremental``: its rows are maintained
from the changes of its inputs. ``auto``: incremental if nova has a rule for each part of the query, otherwise full; and
each execution chooses the cheaper of changes and replacement.
"""


FloatPolicy: TypeAlias = Literal["exact", "fast"]
"""How sums of floating-point numbers are maintained. ``exact``: groups that changed are computed again. ``fast``: the
change is added to the stored sum, which drifts.
"""


@dataclass(frozen=True)
class RefreshDecision:
    """How a dataset is brought up to date.

    Args:
        operators: the steps through which changes pass; None if the query is computed again.
        reason: why the query is computed again although ``auto`` was requested; otherwise empty.
        requested: what the project requests.
    """

    operators: Operator | None = None
    reason: str = ""
    requested: Refresh = "full"

    @property
    def is_incremental(self) -> bool:
        return self.operators is not None

    def as_json(self) -> dict[str, Any]:
        steps = [] if self.operators is None else [line._asdict() for line in describe_operators(self.operators)]
        return {"refresh": "incremental" if steps else "full", "reason": self.reason, "steps": steps}
