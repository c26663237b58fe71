"""Data checks as Dagster asset checks.

An execution evaluates its checks before the commit. Dagster stops a run at a failed blocking check, so the commit step
does not run. An insert and the step of a plain asset run the checks of their channels, too, and report them to Dagster.
Besides, each check of a channel whose rows come from outside or from plain assets can be run at any time: it then looks
at the rows that the channel has.
"""

# No `from __future__ import annotations`: Dagster reads the annotation of the context.
from typing import Any

from dagster import (
    AssetCheckEvaluation,
    AssetCheckExecutionContext,
    AssetCheckKey,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetCheckSeverity,
    AssetCheckSpec,
)
from dagster import asset_check as dagster_asset_check
from dagster._core.storage.asset_check_execution_record import COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES

from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.dagster_bridge.partitions import build_partitions_definition
from nova_assets.errors import DefinitionError
from nova_assets.model.binding import Binding
from nova_assets.model.commit import Commit
from nova_assets.model.data_check import Check
from nova_assets.model.execution import CheckReport
from nova_assets.model.names import find_duplicates
from nova_assets.model.project import Project
from nova_assets.store.store import Store


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


def build_channel_checks(project: Project, names: DagsterNames) -> list[AssetChecksDefinition]:
    """The checks of channels that no binding of the project writes. The other checks belong to the asset of the
    binding.
    """
    # The step of a plain asset has no outputs for them: Dagster would expect the asset's own function to return them.
    return [_build_channel_check(check, names) for check in project.checks if project.writer(check.port) is None]


def _build_channel_check(check: Check, names: DagsterNames) -> AssetChecksDefinition:
    @dagster_asset_check(
        asset=names.key(check.port),
        name=check.name,
        description=check.description,
        blocking=check.blocking,
        required_resource_keys={names.resource},
    )
    def run_check(context: AssetCheckExecutionContext) -> AssetCheckResult:
        known = _result_of_same_run(context, AssetCheckKey(names.key(check.port), check.name))
        if known is not None:
            return known
        store: Store = getattr(context.resources, names.resource).store()
        [report] = [r for r in store.check_rows(check.port) if r.check == check.name]
        return to_check_result(report, names)

    return run_check


def _result_of_same_run(context: AssetCheckExecutionContext, key: AssetCheckKey) -> AssetCheckResult | None:
    """Result that the step of the channel's asset has reported in this run; None if it has not run here."""
    records = context.instance.event_log_storage.get_asset_check_execution_history(key, limit=2)
    for record in records:
        event = record.event.dagster_event if record.event is not None else None
        is_evaluated = record.status in COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES
        if event is not None and is_evaluated and record.run_id == context.run.run_id:
            evaluation = event.asset_check_evaluation_data
            return AssetCheckResult(
                passed=evaluation.passed,
                metadata=evaluation.metadata,
                severity=evaluation.severity,
                description=evaluation.description,
            )
    return None
