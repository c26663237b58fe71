"""Checks as Dagster shows them: asset checks of the channel that they are about, before anything is
published.

Dagster stops a run at a failed check that blocks, so the commit, which comes after, does not happen.
"""

from __future__ import annotations

from dagster import AssetCheckResult, AssetCheckSeverity, AssetCheckSpec, AssetKey

from nova_assets.dagster_bridge.partitions import partitions_def
from nova_assets.model.binding import Binding
from nova_assets.model.execution import CheckReport


def check_specs(binding: Binding) -> list[AssetCheckSpec]:
    """What Dagster is told of a binding's checks."""
    return [
        AssetCheckSpec(
            c.name,
            asset=AssetKey(binding.channels[c.port].name),
            description=c.description,
            blocking=c.blocking,
            partitions_def=partitions_def(binding.dimensions),
        )
        for c in binding.checks
    ]


def result_of(report: CheckReport) -> AssetCheckResult:
    """What a check found, as Dagster keeps it."""
    found = {} if report.found is None else {"found": report.found}
    return AssetCheckResult(
        asset_key=AssetKey(report.channel),
        check_name=report.check,
        passed=report.passed,
        severity=AssetCheckSeverity.ERROR if report.blocking else AssetCheckSeverity.WARN,
        description=report.found,
        metadata={**report.metadata, **found, "nova/seconds": round(report.seconds, 3)},
    )
