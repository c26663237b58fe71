"""Place of a SQLite catalog: the file in which the catalog is, and the folder in which its log is.

The catalog stores its own place. A process that finds another place recorded has opened a copy, a restored backup, a
renamed file, or one file under a second name (as a bind mount gives it to a container).
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

PlaceChange = Literal["none", "new", "renamed", "restored", "copied"]
"""Difference between the recorded place and the own place.

``new``: no place is recorded yet. ``renamed``: the same file under another name, or on a renumbered device.
``restored``: another file under the same name. ``copied``: another file under another name.
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Place of the file of a catalog, and of its log, which is in the same folder.

    Args:
        device, inode: identity of the file.
        folder_device, folder_inode: identity of the folder. Two names of one file have one log only if they are the
            same name in the same folder.
        path: path without symbolic links.
        generation: number that a file system gives to each use of an inode; 0 if unknown. A file that is removed and
            copied back often has the same inode as before.
    """

    device: int
    inode: int
    folder_device: int
    folder_inode: int
    path: str
    generation: int = 0

    @property
    def name(self) -> str:
        return Path(self.path).name

    def as_text(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class RecordedPlace:
    """Place that a catalog stores.

    Args:
        place: None if the catalog was written by an older version, or by another system.
        backup_time: time of the backup in which the catalog was; None if this is no backup.
    """

    place: Place | None
    backup_time: str | None = None

    @classmethod
    def parse(cls, text: str | None) -> RecordedPlace:
        stored: dict[str, Any] = json.loads(text) if text else {}
        if "made_at" in stored:
            original = stored.get("backup_of")
            return cls(None if original is None else Place(**original), str(stored["made_at"]))
        return cls(Place(**stored) if stored else None)


def place_of_file(file: Path, generation: int) -> Place:
    """Place of a file that exists. Raises OSError."""
    path = os.path.realpath(file)
    status, folder = os.stat(path), os.stat(os.path.dirname(path))
    return Place(status.st_dev, status.st_ino, folder.st_dev, folder.st_ino, path, generation)


def _is_same_file(place: Place, own: Place) -> bool:
    """Whether two places have the same file. Files of two devices, or of two times, may have the same inode number.

    After a restart, a device may have another number, but the path is then the same.
    """
    is_reused = 0 not in (place.generation, own.generation) and place.generation != own.generation
    is_other_device = place.device != own.device and place.path != own.path
    return place.inode == own.inode and not is_reused and not is_other_device


def place_change(recorded: RecordedPlace, own: Place) -> PlaceChange:
    """Difference between the recorded place and the own place."""
    place = recorded.place
    if place is None:
        return "new" if recorded.backup_time is None else "copied"
    is_same_name = (place.folder_inode, place.name) == (own.folder_inode, own.name)
    if recorded.backup_time is None and _is_same_file(place, own):
        is_same_device = (place.device, place.folder_device) == (own.device, own.folder_device)
        return "none" if is_same_name and is_same_device else "renamed"
    is_same_device = place.device == own.device or place.path == own.path
    return "restored" if is_same_name and is_same_device else "copied"
