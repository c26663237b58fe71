"""Following timelines: views that are loaded where they are asked for, and go on by what has happened since.

    ask ─► is the view where the asker is, or further? ─► answer
             └ no ─► instants since ─► edit ─► written at once ─► answer

An instant is applied whole or not at all, and an answer is of one state. What cannot be kept (a full disk) is answered
all the same, from memory; what was damaged is loaded again.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from nova_assets.errors import ChannelNotFound, StorageFailed, TimelineDiffers
from nova_assets.file_views.block_encoding import Damaged
from nova_assets.file_views.channel_view import HEAD, View, channel_drawer
from nova_assets.file_views.storage import Glance, InMemory, Look, Storage, TooMuch
from nova_assets.file_views.view_changes import Edit, Loaded
from nova_assets.masking import get_logger
from nova_assets.model.catalog import Catalog
from nova_assets.model.partitions import WHOLE, single_in
from nova_assets.model.timeline import Position, Standing, Step

log = get_logger("nova_assets.views")

T = TypeVar("T")

AT_ONCE = 200
"""Partitions that are loaded by one transaction: what is in memory of a channel while it is loaded."""

RETRY = 30.0
"""Seconds after which a storage that failed is tried again."""

SAVED = 300.0
"""Seconds after which what is kept in memory is saved once more."""

_TRIES = 20
"""So often what was found out may be in vain, since another process has written meanwhile."""


@dataclass(frozen=True, slots=True)
class _Done:
    """What came of a round.

    Args:
        complete: nothing is left to be loaded.
        absent: scopes that are partitions of which the catalog knows nothing.
    """

    complete: bool
    absent: frozenset[str] = frozenset()


@dataclass
class Counts:
    """What a follower has done, since it began.

    Args:
        asked: questions.
        met: of these, those that the view answered as it was, without a look at the catalog.
        applied: instants.
        loaded: partitions, from the catalog.
        rebuilt: of these, those that had been loaded, and to which an instant could not be applied.
        restarted: timelines that were another one, or too far ahead.
        failed: times that the storage failed.
    """

    asked: int = 0
    met: int = 0
    applied: int = 0
    loaded: int = 0
    rebuilt: int = 0
    restarted: int = 0
    failed: int = 0


class Follower:
    """Answers from views, and keeps them current.

    Args:
        catalog: the truth.
        storage: where the views are kept.
    """

    def __init__(self, catalog: Catalog, storage: Storage, clock: Callable[[], float] = time.monotonic) -> None:
        self.catalog = catalog
        self.storage = storage
        self.counts = Counts()
        self._clock = clock
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._looked: dict[str, float] = {}
        self._spare: Follower | None = None
        self._again = 0.0
        self._saved = clock()

    def ask(
        self,
        channel: str,
        work: Callable[[View], T],
        scopes: Sequence[str] = (WHOLE,),
        known: Position | None = None,
        *,
        enough: bool = False,
    ) -> T:
        """What ``work`` makes of a view of these scopes, as they are now.

        Args:
            work: reads the view, and may be called again.
            known: what the asker knows of the timeline.
            enough: a view that is where the asker is, or further, need not be looked after: more may have happened.

        Raises:
            ChannelNotFound.
            TimelineDiffers: what the asker knows is not of the channel's timeline.
        """
        self.counts.asked += 1
        spare = self._spare
        if spare is not None and self._clock() < self._again:
            return spare.ask(channel, work, scopes, known, enough=enough)
        try:
            found = self._ask(channel, work, scopes, known, enough)
            self._spare = None
            self._save_now_and_then()
            return found
        except ChannelNotFound:
            self._locks.pop(channel, None)
            raise
        except (StorageFailed, Damaged) as error:
            self.counts.failed += 1
            log.error("views are answered from memory: %s", error)
            self._spare = spare = Follower(self.catalog, InMemory(), self._clock)
            self._again = self._clock() + RETRY
            return spare.ask(channel, work, scopes, known, enough=enough)

    def at_hand(self, channel: str, work: Callable[[View], T], scope: str, known: Position) -> T | None:
        """What ``work`` makes of a view that is where the asker is, or further; None where there is none, or it is much
        that would have to be looked at. Takes little time, and waits for nothing."""
        if self._spare is not None:
            return None
        try:
            with self.storage.look() as looked:
                view = View.find(Glance(looked), channel)
                if view is None or not view.knows(known) or not view.covers(scope):
                    return None
                found = work(view)
        except (Damaged, StorageFailed, TooMuch):
            return None
        self.counts.asked += found is not None
        self.counts.met += found is not None
        return found

    def lacks_changes(self, channel: str, scope: str, since: int) -> bool:
        """Whether many partitions would have to be loaded, or looked through, to tell what changed after a number.

        Raises:
            ChannelNotFound.
        """
        try:
            with self.storage.look() as looked:
                view = self._found(looked, channel)
                if view is not None:
                    columns = view.head.columns
                    return _is_wide(columns, scope) and (not view.covers(scope) or view.touched(since) is None)
        except (StorageFailed, Damaged):
            return True
        return _is_wide(self.catalog.channel(channel).channel.partition_columns, scope)

    def cleaned(self, channel: str, step: int) -> None:
        """Of partitions that no later instant has touched, nothing is left to be collected."""
        try:
            self._note_cleaned(channel, step)
        except StorageFailed as error:
            log.warning("what was collected is looked at again the next time: %s", error)

    def _note_cleaned(self, channel: str, step: int) -> None:
        with self._locks[channel], self.storage.look() as looked:
            view = self._found(looked, channel)
            if view is None or view.head.cleaned >= step:
                return
            before = view.head.encode()
            after = replace(view.head, cleaned=step).encode()
            self.storage.write({channel_drawer(channel): {HEAD: after}}, (channel_drawer(channel), HEAD, before))

    def _ask(
        self, channel: str, work: Callable[[View], T], scopes: Sequence[str], known: Position | None, enough: bool
    ) -> T:
        since = self._clock()
        if known is not None and enough:
            with self.storage.look() as looked:
                view = self._found(looked, channel)
                if view is not None and view.knows(known) and all(map(view.covers, scopes)):
                    try:
                        answer = work(view)
                        self.counts.met += 1
                        return answer
                    except Damaged as error:
                        self._forget(channel, error)
        for attempt in (1, 2):
            absent = self._catch_up(channel, scopes, since)
            with self.storage.look() as looked:
                view = self._found(looked, channel)
                if view is None or not all(scope in absent or view.covers(scope) for scope in scopes):
                    continue  # forgotten meanwhile
                if known is not None and not self._is_past(view, known):
                    raise _differs(channel, known, view.position)
                try:
                    return work(view)
                except Damaged as error:
                    if attempt == 2:
                        raise
                    self._forget(channel, error)
                    since = self._clock()
        raise StorageFailed(f"the view of channel {channel!r} does not stay", next="nova serve --views FOLDER")

    def _is_past(self, view: View, known: Position) -> bool:
        """Whether what an asker knows is part of what the view knows: it may have begun before the view did."""
        if view.knows(known):
            return True
        return known.step < view.position.step and self.catalog.passed(view.head.channel, known, 0) is not None

    def _catch_up(self, channel: str, scopes: Sequence[str], since: float) -> frozenset[str]:
        """Make the view what the channel was at a moment, or later. One thread does, the others wait for it.

        Gives those of the scopes that are partitions of which nothing is known: none is loaded for being asked for.
        """
        with self._locks[channel]:
            with self.storage.look() as looked:
                view = self._found(looked, channel)
                lacking = view is None or not all(map(view.covers, scopes))
            if not lacking and self._looked.get(channel, float("-inf")) > since:
                return frozenset()
            began, vain = self._clock(), 0
            while vain < _TRIES:
                done = self._round(channel, scopes)
                if done is not None and done.complete:
                    self._looked[channel] = began
                    return done.absent
                vain += done is None
        raise StorageFailed(f"the view of channel {channel!r} is written to by another process again and again")

    def _round(self, channel: str, scopes: Sequence[str]) -> _Done | None:
        """One transaction's worth of it; None where it came to nothing."""
        with self.storage.look() as looked:
            view = self._found(looked, channel)
            edit, standing, done = self._edited(looked, channel, view, scopes, ())
            if edit.unsafe:
                log.warning("partitions of channel %s are loaded again: %s", channel, ", ".join(sorted(edit.unsafe)))
                self.counts.rebuilt += len(edit.unsafe)
                edit, standing, done = self._edited(looked, channel, view, scopes, sorted(edit.unsafe))
            if edit.is_empty:
                return done
            changes, expect = edit.changes(standing)
        if not self.storage.write(changes, expect):
            return None
        self.counts.applied += edit.applied
        return done

    def _edited(
        self, looked: Look, channel: str, view: View | None, scopes: Sequence[str], again: Sequence[str]
    ) -> tuple[Edit, Standing, _Done]:
        edit = Edit(looked, channel, view)
        names, covered, complete = self._lacking(channel, view, scopes)
        names = [*again, *(n for n in names if n not in again)]
        loaded = self._load(channel, names) if names or view is None else None
        nothing = frozenset(names) - frozenset(loaded.partitions if loaded is not None else ())
        columns = view.head.columns if view is not None else () if loaded is None else loaded.standing.columns
        absent = frozenset(scope for scope in scopes if nothing and single_in(columns, scope) in nothing)
        if view is None:
            assert loaded is not None
            edit.begin(loaded.standing)
            edit.load(loaded)
            for scope, standing in covered:
                if standing.position == loaded.standing.position:
                    edit.cover(scope, standing)
                else:
                    complete = False
            return edit, loaded.standing, _Done(complete, absent)
        standing, steps = self.catalog.steps(channel, view.position)
        if steps is None or not _is_all(view, standing, steps):
            self.counts.restarted += 1
            edit.begin(standing)
            return edit, standing, _Done(False)
        if loaded is not None:
            edit.load(loaded)
        for scope, there in covered:
            edit.cover(scope, there)
        for step in steps:
            edit.apply(step)
        # What was not there when it was asked for may be by now: then it is loaded by the next round.
        born = {b.partition for s in steps for b in s.added} & nothing
        return edit, standing, _Done(complete and not born, absent)

    def _lacking(
        self, channel: str, view: View | None, scopes: Sequence[str]
    ) -> tuple[list[str], list[tuple[str, Standing]], bool]:
        """What is to be loaded now; scopes that are covered then; and whether that is all."""
        names: list[str] = []
        covered: list[tuple[str, Standing]] = []
        for scope in scopes:
            if view is not None and view.covers(scope):
                continue
            if view is not None and view.head.columns and (one := view.head.single(scope)) is not None:
                names += [one] if one not in names else []
                continue
            standing, there = self.catalog.named(channel, scope)
            single = single_in(standing.columns, scope)
            wanted = [single] if single is not None else [n for n in there if view is None or not view.has(n)]
            names += [n for n in wanted if n not in names]
            if len(names) > AT_ONCE:
                return names[:AT_ONCE], covered, False
            if single is None or not standing.columns:
                covered.append((scope, standing))
        return names, covered, True

    def _load(self, channel: str, names: Sequence[str]) -> Loaded:
        standing, history = self.catalog.bootstrap(channel, names)
        known = {b.partition for b in history.blocks} | history.numbers.keys()
        there = tuple(n for n in names if n in known or not standing.columns)
        self.counts.loaded += len(there)
        return Loaded(standing, there, history)

    def _found(self, looked: Look, channel: str) -> View | None:
        try:
            return View.find(looked, channel)
        except Damaged as error:
            self._forget(channel, error)
            return None

    def _forget(self, channel: str, error: Exception) -> None:
        log.warning("the view of channel %s is damaged, and loaded again: %s: %s", channel, type(error).__name__, error)
        self.counts.rebuilt += 1
        self.storage.write({channel_drawer(channel): None})

    def _save_now_and_then(self) -> None:
        now = self._clock()
        if now < self._saved + SAVED:
            return
        self._saved = now
        threading.Thread(target=self.save, name="nova-views", daemon=True).start()

    def save(self) -> None:
        """Have the next process find what is kept here."""
        try:
            self.storage.save()
        except StorageFailed as error:
            log.warning("views could not be saved: %s", error)

    def size(self) -> int:
        """How many bytes the views take; 0 where that cannot be told."""
        try:
            return self.storage.size()
        except StorageFailed:
            return 0

    def close(self) -> None:
        """Save the views, and let go."""
        self.storage.close()


def _is_wide(columns: Sequence[str], scope: str) -> bool:
    """Whether a scope may be more than one partition."""
    return bool(columns) and single_in(columns, scope) is None


def _is_all(view: View, standing: Standing, steps: Sequence[Step]) -> bool:
    """Whether each number that was taken has its instant: a process of a version that knows no instants may have
    written beside this one."""
    taken = sum(any(b.origin != "compact" for b in s.added) for s in steps)
    return view.head.head + taken == standing.head


def _differs(channel: str, known: Position, found: Position) -> TimelineDiffers:
    return TimelineDiffers(
        f"the timeline of channel {channel!r} is another one",
        found=f"instant {found.step}, {found.prefix[:12] or 'the beginning'}",
        expected=f"one that goes on from instant {known.step}, {known.prefix[:12] or 'the beginning'}",
        next="ask again without a position: what was known of it is void",
        channel=channel,
    )
