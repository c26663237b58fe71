"""What a component adds to the one nova project of its code location."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from dagster import AssetsDefinition, Component

from nova_assets.model.binding import Binding
from nova_assets.model.channel import Channel
from nova_assets.model.data_check import Check
from nova_assets.sql.datasets.dataset_bindings import DatasetFolder


@dataclass(frozen=True, slots=True)
class Contribution:
    """What a component adds to the project of its code location.

    Args:
        channels: channels, with or without a writer.
        bindings: bindings of a Python project.
        assets: plain Dagster assets, which may read and write channels.
        folders: folders of datasets in SQL.
        checks: checks of channels.
        key_prefix: first parts of all asset keys of the project. None leaves it to the other components.
    """

    channels: Sequence[Channel] = ()
    bindings: Sequence[Binding] = ()
    assets: Sequence[AssetsDefinition] = ()
    folders: Sequence[DatasetFolder] = ()
    checks: Sequence[Check] = ()
    key_prefix: tuple[str, ...] | None = None


class Contributor(Component, ABC):
    """Component that contributes to the one nova project of its code location."""

    @property
    @abstractmethod
    def contribution(self) -> Contribution:
        """What the component adds. Raises FieldError, which names the field."""
