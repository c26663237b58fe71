"""Protocol of a publish target: a table that can show published versions of a channel."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from nova_assets.model.published_version import PublishedContent


class PublishTarget(Protocol):
    """A table that readers find outside of nova. It makes no decisions, and knows nothing of nova's catalog."""

    def check_can_publish(self, *, take_over: bool = False) -> None:
        """Check that versions can be published here, before anything is changed.

        Args:
            take_over: replace data of another owner.

        Raises:
            TableTaken: the table belongs to another owner.
            TableUnavailable: the table cannot be reached or written.
        """

    def published_version(self) -> int | None:
        """Number of the version that readers see; None if the table shows no version of this channel.

        Raises:
            TableUnavailable.
        """

    def is_complete(self, number: int) -> bool:
        """Whether readers can use the whole content of a version."""
        ...

    def publish(
        self, number: int, content: PublishedContent, file_paths: Sequence[str], *, take_over: bool = False
    ) -> None:
        """Show a version instead of the previous one, atomically and as a whole.

        Args:
            number: number of the version. It must be higher than the number that is shown.
            content: content of the version.
            file_paths: files of the content, in its order, as absolute paths.
            take_over: replace data of another owner.

        Raises:
            CommitConflict: the same or a later version is already shown.
            TableTaken, TableUnavailable.
        """

    def delete_versions(self, numbers: Collection[int]) -> None:
        """Delete versions that have no readers left.

        Never deletes the version that is shown. Missing versions are ignored.

        Raises:
            TableUnavailable.
        """

    def withdraw(self) -> None:
        """Stop showing any version, and delete everything. A missing table is ignored.

        Raises:
            TableTaken, TableUnavailable.
        """
