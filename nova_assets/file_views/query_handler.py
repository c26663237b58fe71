"""Handler of view queries: asks the followed views, and proves that each answer continues the asker's timeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from nova_assets.errors import TimelineDiffers, VersionNotFound
from nova_assets.file_views import responses
from nova_assets.file_views.channel_view import ChannelView
from nova_assets.file_views.responses import Link, TimelineProof
from nova_assets.file_views.timeline_follower import TimelineFollower
from nova_assets.file_views.view_entries import ViewInstant
from nova_assets.model.channel_state import CollectedGarbage
from nova_assets.model.timeline import ChannelHead, TimelinePosition
from nova_assets.plan.garbage_collection import blocks_to_collect, oldest_retained_version, retention_verdicts

T = TypeVar("T")

LINKS = 1000
"""Maximum number of links in a proof.

An asker that is further behind gets no links, and asks the catalog for its position.
"""


class ViewQueryHandler:
    """Encoded answers to view queries, for a service and its clients.

    An asker may give its known timeline position. The answer then proves that it continues from there. With
    ``allow_stale``, a view at that position is enough, and the catalog is not asked for newer instants.

    Every answer may raise ChannelNotFound. Answers about a number may raise VersionNotFound and BlockCollected.
    TimelineDiffers is raised if the known position belongs to another timeline.

    Args:
        follower: keeps the views current.
    """

    def __init__(self, follower: TimelineFollower) -> None:
        self.follower = follower
        self.catalog = follower.catalog

    def close(self) -> None:
        self.follower.close()

    def history_answer(
        self,
        channel: str,
        scope: str,
        at: int | None,
        since: int,
        back_to: int,
        known_position: TimelinePosition | None,
        *,
        allow_stale: bool = False,
    ) -> bytes:
        """History that a plan needs (see ``responses.encode_history``)."""

        def encode_from_view(view: ChannelView, proof: TimelineProof) -> bytes | None:
            if at is not None and not view.has_schema_at(at):
                return None
            return responses.encode_history(view, scope, at, since, back_to, proof)

        if not self._prefers_catalog(channel, scope, since):
            answer = self._query_view(channel, scope, at, known_position, allow_stale, encode_from_view)
            if answer is not None:
                return answer
        # Only the catalog knows the schema before the view began.
        channel_head, loaded_history = self.catalog.timelines.head_and_history(channel, at, scope, since, back_to)
        return responses.encode_history_without_view(
            loaded_history, self._proof_from_catalog(channel_head, known_position)
        )

    def files_answer(
        self,
        channel: str,
        scope: str,
        at: int | None,
        known_position: TimelinePosition | None,
        *,
        allow_stale: bool = False,
    ) -> bytes:
        """Files of a snapshot (see ``responses.encode_files``)."""
        return self._query_view(
            channel,
            scope,
            at,
            known_position,
            allow_stale,
            lambda view, proof: responses.encode_files(view, scope, at, proof),
        )

    def files_answer_if_current(
        self, channel: str, scope: str, at: int | None, known_position: TimelinePosition
    ) -> bytes | None:
        """Files of a snapshot, if the view has them at hand (see ``TimelineFollower.answer_if_current``).

        Returns:
            None if the view does not have them.
        """

        def encode_from_view(view: ChannelView) -> bytes | None:
            links = _links_from_view(view, known_position)
            if links is None or (at is not None and at > view.header.head):
                return None
            return responses.encode_files(view, scope, at, TimelineProof(view.position, links))

        return self.follower.answer_if_current(channel, encode_from_view, scope, known_position)

    def changed_files_answer(
        self,
        channel: str,
        scope: str,
        since: int,
        at: int | None,
        known_position: TimelinePosition | None,
        *,
        allow_stale: bool = False,
    ) -> bytes:
        """Files that contain the changes (see ``responses.encode_changed_files``)."""
        if self._prefers_catalog(channel, scope, since):
            channel_head, history = self.catalog.timelines.head_and_history(channel, at, scope, since, 0)
            return responses.encode_changed_files_of_history(
                history, since, self._proof_from_catalog(channel_head, known_position)
            )
        return self._query_view(
            channel,
            scope,
            at,
            known_position,
            allow_stale,
            lambda view, proof: responses.encode_changed_files(view, scope, since, at, proof),
        )

    def instants(
        self, channel: str, after: int, limit: int, known_position: TimelinePosition | None = None
    ) -> tuple[TimelinePosition, list[ViewInstant]]:
        """First complete instants after a step, oldest first, with the partitions that each touched.

        Returns:
            The position of the view, and the instants.

        Raises:
            TimelineDiffers: the timeline does not reach that step.
        """

        def read_instants(view: ChannelView) -> tuple[TimelinePosition, list[ViewInstant] | None]:
            if after > view.position.step:
                raise TimelineDiffers(
                    f"the timeline of channel {channel!r} has no instant {after} yet",
                    found=f"{view.position.step} instants",
                    next="ask for the instants after 0: the timeline was replaced",
                    channel=channel,
                )
            kept_instants = view.instants(after)
            has_all_instants = len(kept_instants) >= view.position.step - after
            return view.position, kept_instants[:limit] if has_all_instants else None

        # No scope is needed, since the view records all instants of the channel.
        position, kept_instants = self.follower.ask(channel, read_instants, [], known_position)
        if kept_instants is not None:
            return position, kept_instants
        instants = [ViewInstant(*summary) for summary in self.catalog.instants.summaries(channel, after, limit)]
        return position, [instant for instant in instants if instant.n <= position.step]

    def collect(self, channel: str, retain_seconds: float) -> CollectedGarbage:
        """Collect all blocks that are not retained (R15).

        The view finds the partitions with such blocks, starting at the oldest retained version. The catalog decides
        under its lock which blocks to collect.
        """
        retention_state = self.catalog.garbage.retention_state(channel, retain_seconds, ())
        oldest_number = oldest_retained_version(retention_state)

        def find_collectable(view: ChannelView) -> tuple[int, dict[str, str]]:
            candidate_partitions = [p.name for p in view.loaded_partitions() if p.step > view.header.cleaned]
            collectable_blocks = blocks_to_collect(
                retention_verdicts(replace(retention_state, history=view.history_of_partitions(candidate_partitions)))
            )
            return view.last_step_at_number(oldest_number), {b.id: b.partition for b in collectable_blocks}

        step, partition_by_block = self.follower.ask(channel, find_collectable)
        partitions = sorted(set(partition_by_block.values()))
        collection = (
            self.catalog.garbage.collect(channel, retain_seconds, partitions)
            if partitions
            else CollectedGarbage(channel, ())
        )
        # If the catalog retained some of the blocks, the next collection looks at them again.
        if {b.id for b in collection.blocks} >= partition_by_block.keys():
            self.follower.mark_collection_complete(channel, step)
        return collection

    def _query_view(
        self,
        channel: str,
        scope: str,
        at: int | None,
        known_position: TimelinePosition | None,
        allow_stale: bool,
        read_view: Callable[[ChannelView, TimelineProof], T],
    ) -> T:
        """Ask a view at a number, and update the view first if it has not reached that number.

        Args:
            read_view: reads the view. The proof is that of its position.

        Raises:
            VersionNotFound: the channel has no such number.
        """

        def read_at_number(view: ChannelView) -> tuple[int, T | None]:
            head = view.header.head
            if at is not None and at > head:
                return head, None
            return head, read_view(view, self._proof_from_view(view, known_position))

        head, result = self.follower.ask(channel, read_at_number, [scope], known_position, allow_stale=allow_stale)
        if at is not None and at > head and allow_stale:
            head, result = self.follower.ask(channel, read_at_number, [scope])
        if at is not None and not 0 <= at <= head:
            raise VersionNotFound.of(channel, at, head)
        return result  # type: ignore[return-value]

    def _prefers_catalog(self, channel: str, scope: str, since: int) -> bool:
        """Whether to ask the catalog instead.

        It finds the changes after a number by index, without loading partitions.
        """
        return since > 0 and self.follower.must_load_many_partitions(channel, scope, since)

    def _proof_from_catalog(self, channel_head: ChannelHead, known_position: TimelinePosition | None) -> TimelineProof:
        """Proof that the catalog's position continues the known position."""
        return TimelineProof(
            channel_head.position, self._links_from_catalog(channel_head.channel, known_position, channel_head.position)
        )

    def _proof_from_view(self, view: ChannelView, known_position: TimelinePosition | None) -> TimelineProof:
        """Proof that the view's position continues the known position."""
        links = () if known_position is None else _links_from_view(view, known_position)
        if links is None:
            links = self._links_from_catalog(view.header.channel, known_position, view.position)
        return TimelineProof(view.position, links)

    def _links_from_catalog(
        self, channel: str, known_position: TimelinePosition | None, position: TimelinePosition
    ) -> tuple[Link, ...]:
        if known_position is None or known_position == position:
            return ()
        steps = self.catalog.timelines.steps_without_blocks(channel, known_position, LINKS + 1)
        if steps is None:
            raise TimelineDiffers(f"the timeline of channel {channel!r} was replaced", channel=channel)
        links = tuple((s.action, s.commit_id) for s in steps if s.position.step <= position.step)
        return links if len(links) <= LINKS else ()


def _links_from_view(view: ChannelView, known_position: TimelinePosition) -> tuple[Link, ...] | None:
    """Links from the known position to the view's position; None if the view does not reach back that far."""
    if known_position == view.position:
        return ()
    later_instants = view.instants(known_position.step)
    if len(later_instants) != view.position.step - known_position.step:
        return None
    return tuple((i.action, i.commit) for i in later_instants) if len(later_instants) <= LINKS else ()
