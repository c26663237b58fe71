"""Names in Dagster: the asset keys of channels, and what jobs, sensors, steps and resources are called.

Two projects can live in one Dagster deployment if they have different key prefixes. Every name that the bridge gives to
Dagster, and every channel that it takes from an asset key, comes from here.

The catalog knows no prefix. Queries, tasks and commands would have to spell it, and a channel with a new prefix would
be another channel, without data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from dagster import AssetKey

from nova_assets.store.store import Store

RESOURCE_KEY = "nova"
"""Key of the ``NovaResource`` without a prefix. As an IO manager, it loads and writes channels."""

IO_MANAGER_KEY = "nova_io_manager"
"""Another key of the same IO manager, for assets of users that name it. Steps of nova need one resource, not two."""

_SEPARATOR = "#"
"""Separates a code location from the key prefix under which it reports its channels."""


@dataclass(frozen=True, slots=True)
class DagsterNames:
    """Names in Dagster of one project.

    Args:
        prefix: first parts of the asset keys of the project.
    """

    prefix: tuple[str, ...] = ()

    @classmethod
    def of(cls, store: Store) -> Self:
        """Names of the project of an open store."""
        return cls(store.settings.key_prefix)

    def key(self, channel: str) -> AssetKey:
        """Asset key of a channel."""
        return AssetKey([*self.prefix, channel])

    def channel(self, key: AssetKey) -> str | None:
        """Channel whose asset has this key. None if the key has another prefix, so that its asset is none of ours."""
        *prefix, name = key.path
        return name if tuple(prefix) == self.prefix else None

    def add_prefix(self, key: AssetKey) -> AssetKey:
        """A key below the prefix. A key that is there already stays."""
        n = len(self.prefix)
        return key if len(key.path) > n and tuple(key.path[:n]) == self.prefix else key.with_prefix(self.prefix)

    def name(self, name: str) -> str:
        """Name of a job, a sensor, a step or a resource."""
        return AssetKey([*self.prefix, name]).to_python_identifier() if self.prefix else name

    def without_prefix(self, name: str) -> str:
        """The name as it is without the prefix. Dagster derives the name of a step from the key of its asset."""
        return name.removeprefix(self.name("")) if self.prefix else name

    @property
    def resource(self) -> str:
        """Key of the ``NovaResource``."""
        # With the prefix: Dagster refuses two resources of one key in a job, and the job of all assets has those of all
        # projects.
        return self.name(RESOURCE_KEY)

    @property
    def io_manager(self) -> str:
        """Key of the IO manager of the channels."""
        return self.name(IO_MANAGER_KEY)

    def publisher(self, code_location: str) -> str:
        """Name under which the catalog knows the project of a code location as the one that reports channels."""
        if not self.prefix and _SEPARATOR not in code_location:
            return code_location
        return f"{code_location}{_SEPARATOR}{'/'.join(self.prefix)}"

    @classmethod
    def of_publisher(cls, publisher: str) -> Self:
        """Names of the project that the catalog knows under a name made by ``publisher``."""
        _, _, prefix = publisher.rpartition(_SEPARATOR) if _SEPARATOR in publisher else ("", "", "")
        return cls(tuple(prefix.split("/")) if prefix else ())
