"""Data checks as Dagster asset checks, evaluated before the commit.

Dagster stops a run at a failed blocking check, so the commit step does not run.
"""

from __future__ import annotations

from typing import Any

from dagster import AssetCheckEvaluation, AssetCheckResult, AssetCheckSeverity, AssetCheckSpec, AssetKey

from nova_assets.dagster_bridge.partitions import build_partitions_definition
from nova_assets.errors import DefinitionError
from nova_assets.model.binding import Binding
from nova_assets.model.execution import CheckReport
from nova_assets.model.names import find_duplicates


def build_asset_check_specs(binding: Binding) -> list[AssetCheckSpec]:
    """Asset check specs of a binding's checks.

    Raises:
        DefinitionError: two checks would have the same name in Dagster, which joins the names of channel and check.
    """
    specs = [
        AssetCheckSpec(
            c.name,
            asset=AssetKey(binding.channels[c.port].name),
            description=c.description,
            blocking=c.blocking,
            partitions_def=build_partitions_definition(binding.dimensions),
        )
        for c in binding.checks
    ]
    duplicate_names = find_duplicates(s.get_python_identifier() for s in specs)
    if duplicate_names:
        raise DefinitionError(
            f"binding {binding.name!r}: two checks have the name {duplicate_names[0]!r} in Dagster",
            next="rename one of them",
        )
    return specs


def to_check_result(report: CheckReport) -> AssetCheckResult:
    """Result of a check as an output of its step."""
    return AssetCheckResult(**_check_event_fields(report))


def to_check_evaluation(report: CheckReport) -> AssetCheckEvaluation:
    """Result of a check as an event, for a step that has no output for the check."""
    return AssetCheckEvaluation(**{**_check_event_fields(report), "blocking": report.blocking})


def _check_event_fields(report: CheckReport) -> dict[str, Any]:
    found = {} if report.found is None else {"found": report.found}
    return {
        "asset_key": AssetKey(report.channel),
        "check_name": report.check,
        "passed": report.passed,
        "severity": AssetCheckSeverity.ERROR if report.blocking else AssetCheckSeverity.WARN,
        "description": report.found,
        "metadata": {**report.metadata, **found, "nova/seconds": round(report.seconds, 3)},
    }
