"""The desk: asks the followed views, and proves to whoever asks that what it knows is part of what is answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from nova_assets.errors import TimelineDiffers, VersionNotFound
from nova_assets.file_views import responses
from nova_assets.file_views.channel_view import Instant, View
from nova_assets.file_views.responses import Known, Link
from nova_assets.file_views.timeline_follower import Follower
from nova_assets.model.maintenance import Collection
from nova_assets.model.timeline import Position, Standing
from nova_assets.plan.garbage_collection import collectable, judge, oldest_retained

T = TypeVar("T")

LINKS = 1000
"""An asker that is further behind is told no way, and finds out in the catalog where it is."""


class Desk:
    """Answers as bytes, for a service and its clients.

    Who knows a position of a timeline says so, and is proved that the answer goes on from it; and whether that is
    ``enough``, or it is to be looked whether more has happened since.

    Every answer may raise ChannelNotFound; VersionNotFound and BlockCollected, where it is of a number; and
    TimelineDiffers, where what the asker knows is not of the channel's timeline.

    Args:
        follower: what keeps the views.
    """

    def __init__(self, follower: Follower) -> None:
        self.follower = follower
        self.catalog = follower.catalog

    def history(
        self,
        channel: str,
        scope: str,
        at: int | None,
        since: int,
        back_to: int,
        known: Position | None,
        *,
        enough: bool = False,
    ) -> bytes:
        """What a plan needs of a channel (``answers.history``)."""

        def work(view: View) -> bytes | None:
            if at is not None and not view.tells(at):
                return None
            return responses.history(view, scope, at, since, back_to, self._known(view, known))

        if not self._is_found_sooner(channel, scope, since):
            found = self._ask(channel, scope, at, known, enough, work)
            if found is not None:
                return found
        # What the schema was, before the view began, the catalog alone can tell.
        standing, told = self.catalog.history_there(channel, at, scope, since, back_to)
        return responses.history_told(told, self._there(standing, known))

    def files(self, channel: str, scope: str, at: int | None, known: Position | None, *, enough: bool = False) -> bytes:
        """The files of a snapshot (``answers.files``)."""
        return self._ask(
            channel, scope, at, known, enough, lambda view: responses.files(view, scope, at, self._known(view, known))
        )

    def files_at_hand(self, channel: str, scope: str, at: int | None, known: Position) -> bytes | None:
        """The same, where the view has it at hand (``Follower.at_hand``)."""

        def work(view: View) -> bytes | None:
            links = _links(view, known)
            if links is None or (at is not None and at > view.head.head):
                return None
            return responses.files(view, scope, at, Known(view.position, links))

        return self.follower.at_hand(channel, work, scope, known)

    def changed_files(
        self,
        channel: str,
        scope: str,
        since: int,
        at: int | None,
        known: Position | None,
        *,
        enough: bool = False,
    ) -> bytes:
        """The files that tell what changed (``answers.changed_files``)."""
        if self._is_found_sooner(channel, scope, since):
            standing, told = self.catalog.history_there(channel, at, scope, since, 0)
            return responses.changed_files_told(told, since, self._there(standing, known))
        return self._ask(
            channel,
            scope,
            at,
            known,
            enough,
            lambda view: responses.changed_files(view, scope, since, at, self._known(view, known)),
        )

    def instants(
        self, channel: str, after: int, limit: int, known: Position | None = None
    ) -> tuple[Position, list[Instant]]:
        """The first complete instants after one, oldest first; with the partitions that each touched."""

        def work(view: View) -> tuple[Position, list[Instant] | None]:
            if after > view.position.step:
                raise TimelineDiffers(
                    f"the timeline of channel {channel!r} has no instant {after} yet",
                    found=f"{view.position.step} instants",
                    next="ask for those after 0: what was known of it is void",
                    channel=channel,
                )
            found = view.instants(after)
            return view.position, found[:limit] if len(found) >= view.position.step - after else None

        # Of no partition: whatever happens to the channel is told.
        position, found = self.follower.ask(channel, work, [], known)
        if found is not None:
            return position, found
        told = [Instant(*told) for told in self.catalog.told(channel, after, limit)]
        return position, [instant for instant in told if instant.n <= position.step]

    def collect(self, channel: str, retain: float) -> Collection:
        """Collect what nobody holds (R15). Where there may be any of that the view tells, from the oldest instant on
        that somebody retains; what is taken of it the catalog judges, under its lock.
        """
        facts = self.catalog.upkeep(channel, retain, ())
        oldest = oldest_retained(facts)

        def work(view: View) -> tuple[int, dict[str, str]]:
            touched = [p.name for p in view.partitions() if p.step > view.head.cleaned]
            gone = collectable(judge(replace(facts, history=view.history_of(touched))))
            return view.last_step_at(oldest), {b.id: b.partition for b in gone}

        step, gone = self.follower.ask(channel, work)
        partitions = sorted(set(gone.values()))
        done = self.catalog.collect(channel, retain, partitions) if partitions else Collection(channel, ())
        if {b.id for b in done.blocks} >= gone.keys():  # of what somebody else holds now, something may go later
            self.follower.cleaned(channel, step)
        return done

    def _ask(
        self,
        channel: str,
        scope: str,
        at: int | None,
        known: Position | None,
        enough: bool,
        work: Callable[[View], T],
    ) -> T:
        """Ask a view that has the number, where there is one."""

        def asked(view: View) -> tuple[int, T | None]:
            head = view.head.head
            return (head, None) if at is not None and at > head else (head, work(view))

        head, found = self.follower.ask(channel, asked, [scope], known, enough=enough)
        if at is not None and at > head and enough:
            head, found = self.follower.ask(channel, asked, [scope])
        if at is not None and not 0 <= at <= head:
            raise VersionNotFound.of(channel, at, head)
        return found  # type: ignore[return-value]

    def _is_found_sooner(self, channel: str, scope: str, since: int) -> bool:
        """Whether the catalog is asked: what came after a number it finds by its indexes, and nothing has to be loaded
        for that."""
        return since > 0 and self.follower.lacks_changes(channel, scope, since)

    def _there(self, standing: Standing, known: Position | None) -> Known:
        """Where the channel is, by the catalog, and how one gets there."""
        return Known(standing.position, self._passed(standing.channel, known, standing.position))

    def _known(self, view: View, known: Position | None) -> Known:
        """Where the view is, and how one gets there."""
        links = () if known is None else _links(view, known)
        if links is None:
            links = self._passed(view.head.channel, known, view.position)
        return Known(view.position, links)

    def _passed(self, channel: str, known: Position | None, position: Position) -> tuple[Link, ...]:
        if known is None or known == position:
            return ()
        steps = self.catalog.passed(channel, known, LINKS + 1)
        if steps is None:
            raise TimelineDiffers(f"the timeline of channel {channel!r} is another one", channel=channel)
        found = tuple((s.action, s.commit_id) for s in steps if s.position.step <= position.step)
        return found if len(found) <= LINKS else ()


def _links(view: View, known: Position) -> tuple[Link, ...] | None:
    """How one gets to where the view is; None where the view does not reach back that far."""
    if known == view.position:
        return ()
    found = view.instants(known.step)
    if len(found) != view.position.step - known.step:
        return None
    return tuple((i.action, i.commit) for i in found) if len(found) <= LINKS else ()
