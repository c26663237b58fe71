"""What a table must be able to do, to show editions of a channel."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from nova_assets.model.published_version import PublishedContent


class PublishTarget(Protocol):
    """A table that readers find by itself. It decides nothing, and knows no catalog of ours."""

    def check_can_publish(self, *, take_over: bool = False) -> None:
        """See that it can be shown in, before anything is done.

        Args:
            take_over: what somebody else has put there is to give way.

        Raises:
            TableTaken: it is somebody else's.
            TableUnavailable: it cannot be reached or written.
        """

    def published_version(self) -> int | None:
        """The number of the edition that readers find; None where they find none of ours.

        Raises:
            TableUnavailable.
        """

    def is_complete(self, number: int) -> bool:
        """Whether what it shows as an edition is there for readers."""
        ...

    def publish(
        self, number: int, content: PublishedContent, file_paths: Sequence[str], *, take_over: bool = False
    ) -> None:
        """Show an edition instead of the one before, at once and whole.

        Args:
            number: the edition's; one that is not higher than what is shown is refused.
            file_paths: the files of the content, in its order, as absolute paths.

        Raises:
            CommitConflict: a later edition is shown already.
            TableTaken, TableUnavailable.
        """

    def delete_versions(self, numbers: Collection[int]) -> None:
        """Let go of editions that nobody reads any more; never of the one that is shown, no matter if they are gone.

        Raises:
            TableUnavailable.
        """

    def withdraw(self) -> None:
        """Show nothing any more, and let go of everything; no matter if it is gone.

        Raises:
            TableTaken, TableUnavailable.
        """
