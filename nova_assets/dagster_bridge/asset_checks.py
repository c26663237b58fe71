"""Data checks as Dagster asset checks, evaluated before the commit.

Dagster stops a run at a failed blocking check, so the commit step does not run.
"""

from __future__ import annotations

from typing import Any

from dagster import AssetCheckEvaluation, AssetCheckResult, AssetCheckSeverity, AssetCheckSpec

from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.dagster_bridge.partitions import build_partitions_definition
from nova_assets.errors import DefinitionError
from nova_assets.model.binding import Binding
from nova_assets.model.commit import Commit
from nova_assets.model.execution import CheckReport
from nova_assets.model.names import find_duplicates


def build_asset_check_specs(binding: Binding, names: DagsterNames) -> list[AssetCheckSpec]:
    """Asset check specs of a binding's checks.

    Raises:
        DefinitionError: two checks would have the same name in Dagster, which joins the names of channel and check.
    """
    specs = [
        AssetCheckSpec(
            c.name,
            asset=names.key(binding.channels[c.port].name),
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


def to_check_result(report: CheckReport, names: DagsterNames) -> AssetCheckResult:
    """Result of a check as an output of its step."""
    return AssetCheckResult(**_check_event_fields(report, names))


def to_check_evaluation(report: CheckReport, names: DagsterNames) -> AssetCheckEvaluation:
    """Result of a check as an event, for a step that has no output for the check."""
    return AssetCheckEvaluation(**{**_check_event_fields(report, names), "blocking": report.blocking})


def build_check_evaluations(commit: Commit, names: DagsterNames) -> list[AssetCheckEvaluation]:
    """Results of the checks that an insert has passed, as events for Dagster."""
    return [to_check_evaluation(CheckReport(**recorded), names) for recorded in commit.details.get("checks", ())]


def _check_event_fields(report: CheckReport, names: DagsterNames) -> dict[str, Any]:
    found = {} if report.found is None else {"found": report.found}
    return {
        "asset_key": names.key(report.channel),
        "check_name": report.check,
        "passed": report.passed,
        "severity": AssetCheckSeverity.ERROR if report.blocking else AssetCheckSeverity.WARN,
        "description": report.found,
        "metadata": {**report.metadata, **found, "nova/seconds": round(report.seconds, 3)},
    }
