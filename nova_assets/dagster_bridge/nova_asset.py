"""Short form of a Dagster asset that reads and writes channels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dagster import AssetIn, AssetOut, AssetsDefinition, asset, multi_asset

from nova_assets.dagster_bridge.dagster_names import RESOURCE_KEY
from nova_assets.dagster_bridge.read_modes import MODE_METADATA_KEY, PRODUCES_METADATA_KEY
from nova_assets.dagster_bridge.writing_assets import EDGES_ATTRIBUTE
from nova_assets.errors import DefinitionError
from nova_assets.model.edge import Produces


def nova_asset(
    *, reads: Mapping[str, str] | None = None, writes: Produces | Sequence[Produces], **options: Any
) -> Callable[[Callable[..., Any]], AssetsDefinition]:
    """Decorator that makes a function a plain Dagster asset, which reads channels and writes channels.

    ``build_definitions(project, assets=[...])`` takes the asset, and adds its channels to the project. The function
    returns a Spark DataFrame, an Arrow table, a pandas or polars DataFrame, a list of dicts, or an iterator of Arrow
    record batches. To write nothing, it returns an empty table or list. A function that writes several channels yields
    ``dg.Output(rows, channel)`` for each of them, or returns a tuple in the order of ``writes``.

    Args:
        reads: parameter of the function, which is the name of its channel -> read mode: ``all``, ``new``, ``old`` or
            ``changes``.
        writes: ``nova.delta(channel)`` or ``nova.base(channel)``, or a list of these.
        options: further arguments of ``dg.asset``, or of ``dg.multi_asset`` for several channels.

    Raises:
        DefinitionError: an output has no channel.
    """
    produces = (writes,) if isinstance(writes, Produces) else tuple(writes)
    if unbound := [e.port for e in produces if e.channel is None]:
        raise DefinitionError(
            f"nova_asset writes {unbound[0]!r}, which is no channel",
            expected="a channel",
            next=f'nova.delta(nova.Channel("{unbound[0]}"))',
        )
    ins = {name: AssetIn(name, metadata={MODE_METADATA_KEY: mode}) for name, mode in (reads or {}).items()}

    def decorate(function: Callable[..., Any]) -> AssetsDefinition:
        setattr(function, EDGES_ATTRIBUTE, produces)
        if len(produces) == 1:
            metadata = {**options.pop("metadata", {}), PRODUCES_METADATA_KEY: produces[0].kind}
            one = asset(key=produces[0].port, ins=ins, metadata=metadata, io_manager_key=RESOURCE_KEY, **options)
            return one(function)  # type: ignore[no-any-return]
        outs = {
            e.port: AssetOut(metadata={PRODUCES_METADATA_KEY: e.kind}, io_manager_key=RESOURCE_KEY) for e in produces
        }
        made: AssetsDefinition = multi_asset(outs=outs, ins=ins, **options)(function)
        return made

    return decorate
