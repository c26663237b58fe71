"""Assets of bindings that a run process does not execute: complete for selections, but without steps.

To build the steps is most of the time to load definitions. A job of the user can select such an asset while definitions
load, so the asset stays executable in the eyes of Dagster.

(This module does not postpone annotations, because Dagster inspects the type of ``context`` when it builds an op.)
"""

from functools import cache
from typing import NoReturn

from dagster import AssetsDefinition, BackfillPolicy, OpDefinition, OpExecutionContext

from nova_assets.dagster_bridge.asset_checks import build_asset_check_specs
from nova_assets.dagster_bridge.assets import build_binding_specs
from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.dagster_bridge.ops import SIGNAL_OUT, OpInputs
from nova_assets.dagster_bridge.partitions import HasData
from nova_assets.errors import NotSupported
from nova_assets.model.binding import Binding
from nova_assets.model.project import Project


def build_unneeded_asset(
    binding: Binding,
    project: Project,
    names: DagsterNames,
    has_data: HasData | None,
    backfill_policy: BackfillPolicy | None,
) -> AssetsDefinition:
    """Asset of a binding, as ``build_binding_asset`` builds it, with one op in place of the binding's steps."""
    checks = build_asset_check_specs(binding, names)
    written = sorted(c.name for c in binding.writes)
    return AssetsDefinition(
        node_def=_stand_in(len(written) + len(checks)),
        keys_by_output_name={_output(n): names.key(c) for n, c in enumerate(written)},
        check_specs_by_output_name={_output(n): spec for n, spec in enumerate(checks, len(written))},
        specs=build_binding_specs(binding, project, names, has_data),
        backfill_policy=backfill_policy if binding.dimensions else None,
    )


@cache
def _stand_in(outputs: int) -> OpDefinition:
    """Op that is never executed, with a number of outputs. All bindings with this number share it."""

    def refuse(context: OpExecutionContext, inputs: OpInputs) -> NoReturn:
        raise NotSupported(
            "this process was started for a run of another job, and has not loaded the steps of this asset",
            next="launch a run of this asset",
        )

    return OpDefinition(
        refuse, name=f"nova_not_loaded_{outputs}", outs={_output(n): SIGNAL_OUT for n in range(outputs)}
    )


def _output(number: int) -> str:
    return f"output_{number}"
