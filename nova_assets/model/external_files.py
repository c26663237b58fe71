"""Files that another system makes, and that a block lists where they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

GONE_VERSION = "gone"
"""The version of a partition that was there, and of which nothing is any more."""


@dataclass(frozen=True, slots=True)
class ExternalFolder:
    """Of a block whose files are not the warehouse's: whose they are.

    Args:
        location: the folder that all of them are in; what a path says from there on are values of partition columns.
        version: of all of them together: another one as soon as one was changed, came or went.
    """

    location: str
    version: str

    def as_json(self) -> dict[str, Any]:
        return {"location": self.location, "version": self.version}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> ExternalFolder:
        return ExternalFolder(data["location"], data["version"])

    def contains(self, path: str) -> bool:
        """Whether a file is in the folder."""
        return path.startswith(f"{self.location}/") and ".." not in path.split("/")


def is_external_path(path: str) -> bool:
    """Whether a listed file is in nobody's warehouse: those have paths that begin in theirs."""
    return path.startswith("/") or "://" in path


@dataclass(frozen=True, slots=True)
class ExternalFileInfo:
    """A file that is there.

    Args:
        path: its address.
        bytes: its size.
        modified_ns: when it was last written, in nanoseconds since 1970.
    """

    path: str
    bytes: int
    modified_ns: int
