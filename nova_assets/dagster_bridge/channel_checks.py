"""Checks that a project gives to channels whose rows come from outside or from plain assets, as Dagster asset checks.

An insert and the step of a plain asset run these checks before the commit, and report them to Dagster. Besides, each of
them can be run at any time: it then looks at the rows that the channel has.
"""

# No `from __future__ import annotations`: Dagster reads the annotation of the context.
from dagster import AssetCheckExecutionContext, AssetCheckKey, AssetCheckResult, AssetChecksDefinition
from dagster import asset_check as dagster_asset_check
from dagster._core.storage.asset_check_execution_record import COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES

from nova_assets.dagster_bridge.asset_checks import to_check_result
from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.model.data_check import Check
from nova_assets.model.project import Project
from nova_assets.store.store import Store


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
