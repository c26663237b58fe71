"""Why the trigger of a binding does not fire, although it may be due: a definition is paused or removed."""

from __future__ import annotations

from collections.abc import Iterable

from nova_assets.model.binding import Binding
from nova_assets.model.registered_definition import DefinitionKey, Statuses


def why_trigger_is_off(binding: Binding, statuses: Statuses) -> str:
    """Why nothing runs a binding automatically; empty if nothing prevents it.

    A binding waits if it, its trigger, its workflowette or a channel that it writes is paused or removed. A paused
    binding can still be run by hand.
    """
    if not statuses:
        return ""
    return why_bound_trigger_is_off(binding.name, binding.workflowette.name, (c.name for c in binding.writes), statuses)


def why_bound_trigger_is_off(
    binding: str, workflowette: str, written_channels: Iterable[str], statuses: Statuses
) -> str:
    """As ``why_trigger_is_off``, for a binding of which only the registered definition is known."""
    keys = [
        DefinitionKey("binding", binding),
        DefinitionKey("trigger", binding),
        DefinitionKey("workflowette", workflowette),
        *(DefinitionKey("channel", name) for name in written_channels),
    ]
    return next(filter(None, (why_is_off(key, statuses) for key in keys)), "")


def why_is_off(key: DefinitionKey, statuses: Statuses) -> str:
    """Whether a definition is paused or removed, by whom, and the command that changes it; empty if it is active."""
    status = statuses.get(key)
    if status is None:
        return ""
    if status.can_be_taken_back:
        return f"{key} is {status}: nova remove {key} --undo"
    return f"{key} is {status}" + ("" if status.is_removed else f": nova resume {key}")
