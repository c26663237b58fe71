"""A strategy that a test requires wherever the cost decides."""

from __future__ import annotations

import pytest

from nova_assets.sql.incremental import maintenance_choice
from nova_assets.sql.incremental.maintenance_choice import MaintenanceChoice, Strategy


def force_strategy(patch: pytest.MonkeyPatch, strategy: Strategy) -> None:
    patch.setattr(maintenance_choice, "choose_by_cost", lambda cost, **_: MaintenanceChoice(strategy, "required", cost))
