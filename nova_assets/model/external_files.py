"""Files that another system writes and that a block lists in place."""

from __future__ import annotations

from dataclasses import dataclass, field

from nova_assets.model.json_form import JsonForm, json_key

GONE_VERSION = "gone"
"""Version of a partition that existed and no longer has any files."""


@dataclass(frozen=True, slots=True)
class ExternalFolder(JsonForm):
    """Folder of another system that holds the files of a block.

    Args:
        location: the folder of all files. The rest of a path consists of partition values and the file name.
        version: version of all files together. It changes when a file is added, removed or changed.
        has_values_in_path: whether folder names below the location give the partition's values. Otherwise the location
            is the folder of one partition, and only the name of the partition gives its values.
    """

    location: str
    version: str
    has_values_in_path: bool = field(default=True, metadata=json_key("values_in_path", omit_default=True))

    def contains(self, path: str) -> bool:
        """Whether a path lies in the folder."""
        return path.startswith(f"{self.location}/") and ".." not in path.split("/")


def is_external_path(path: str) -> bool:
    """Whether a listed file lies outside the warehouse. Paths of warehouse files are relative."""
    return path.startswith("/") or "://" in path


@dataclass(frozen=True, slots=True)
class ExternalFileInfo:
    """A file found by listing an external location.

    Args:
        path: address of the file.
        bytes: size of the file.
        modified_ns: time of the last change, in nanoseconds since 1970.
    """

    path: str
    bytes: int
    modified_ns: int
