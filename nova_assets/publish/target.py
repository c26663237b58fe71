"""Protocol of a publish target: a table that can show published versions of a channel."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from nova_assets.errors import CommitConflict, TableTaken
from nova_assets.model.published_version import PublishedContent, TableFile, TableFileLayout

PartitionConverter = Callable[[str, str, TableFileLayout], Sequence[TableFile]]
"""(partition, address of an empty folder, layout) -> the files that were written into the folder."""


@dataclass(frozen=True, slots=True)
class Edition:
    """A version of a channel, to be shown by a table.

    Args:
        number: number of the version. It must be higher than the number that is shown.
        content: content of the version.
        file_paths: absolute paths of the files, in the order of ``content``.
        take_over: replace an existing folder that does not belong to this channel. Only the Hive target on a disk does
            this, and keeps the old folder under another name.
        convert: converts partitions for a table that does not show the channel's own files.
    """

    number: int
    content: PublishedContent
    file_paths: Sequence[str]
    take_over: bool = False
    convert: PartitionConverter | None = None


def check_no_later_version(place: object, shown: int | None, number: int) -> None:
    """Raises CommitConflict if a table shows a version that is not older than the given one."""
    if shown is not None and shown >= number:
        raise CommitConflict(
            f"{place} already shows a later version",
            found=shown,
            expected=f"a version before {number}",
            next="publish again",
            reason="edition",
        )


def check_owner(place: object, actual: str, owner: str) -> None:
    """Raises TableTaken if a folder belongs to another owner than this channel."""
    if actual != owner:
        raise TableTaken(
            f"{place} exists already, and does not belong to this channel",
            found=f"a folder of {actual}",
            expected=f"no folder, or a folder of {owner}",
            next="publish elsewhere, or move it away",
            path=str(place),
        )


class PublishTarget(Protocol):
    """A table that other tools read. A target makes no decisions, and knows nothing of nova's catalog."""

    def check_can_publish(self, *, take_over: bool = False) -> None:
        """Check that versions can be published here, before anything is changed.

        Args:
            take_over: allow that ``publish`` replaces an existing folder. Only the Hive target on a disk does this. The
                folder must not be a link, or hold versions of another channel.

        Raises:
            TableTaken: the table exists, does not belong to this channel, and is not taken over.
            NotSupported: the table is no folder on a disk, and exists already, so it cannot be taken over.
            TableUnavailable: the table cannot be reached or written.
        """

    def published_version(self) -> int | None:
        """Number of the version that readers see; None if the table shows no version of this channel.

        Raises:
            TableUnavailable: the table cannot be reached.
        """

    def is_complete(self, number: int) -> bool:
        """Whether readers can use the whole content of a version."""
        ...

    def publish(self, edition: Edition) -> None:
        """Show a version instead of the previous one, atomically and as a whole.

        Raises:
            CommitConflict: the same or a later version is already shown.
            TableTaken, TableUnavailable: as for ``check_can_publish``.
        """

    def delete_versions(self, numbers: Collection[int]) -> None:
        """Delete versions that have no readers left.

        Never deletes the version that is shown. Missing versions are ignored.

        Raises:
            TableUnavailable.
        """

    def withdraw(self) -> None:
        """Remove the table with all its versions. A missing table is ignored.

        Raises:
            TableTaken, TableUnavailable.
        """
