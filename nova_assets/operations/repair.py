"""Repair: what is amiss between the catalog and the warehouse is found, explained, and mended where it can be.

Finding changes nothing. Mending asks again before it touches anything: nothing live is ever taken for a leftover, since
what is going to be written is recorded first (R3), and the warehouse is listed before the catalog is asked.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import islice

from nova_assets.crash_points import crash_point
from nova_assets.errors import NovaError, WarehouseUnavailable
from nova_assets.execution.lease import is_dead
from nova_assets.execution.runtime import Runtime
from nova_assets.model.damage import Cure, Damage, Examination, Outcome
from nova_assets.model.warehouse_contents import Entry, Upload
from nova_assets.operations.maintenance import retained
from nova_assets.plan.lost_files import lost_files
from nova_assets.plan.repair import left_by, orphans, unfinished

Tell = Callable[[str], None]

AT_ONCE = 16
"""Status calls under way at a time: on a store far away each is a wait, not work."""

_SWEEPS = (0.0, 0.2, 1.0)
"""Seconds to wait before each attempt to sweep."""

_BATCH = 1000
"""Files between two words about how far it has come."""


@dataclass(frozen=True, slots=True)
class _Files:
    """Files of one channel that were looked at.

    Args:
        wrong: path -> what is wrong with it; of those that are not as they were written.
    """

    blocks: int
    files: int
    wrong: Mapping[str, str]


class Repair:
    """Examines and mends one deployment, without Dagster's side of it.

    Args:
        collect_grace: seconds for which what lies in the warehouse is left alone, whoever listed it before.
        tell: hears how far it has come.
        thorough: all bytes of files are read, and compared with their digests.
        sample: of each channel, only so many files are looked at, taken at random; None for all.
    """

    def __init__(
        self,
        runtime: Runtime,
        collect_grace: float,
        tell: Tell = lambda text: None,
        *,
        thorough: bool = False,
        sample: int | None = None,
    ) -> None:
        self.runtime = runtime
        self.catalog = runtime.catalog
        self.engine = runtime.engine
        self.grace = timedelta(seconds=runtime.grace)
        self.lying = timedelta(seconds=max(collect_grace, runtime.lease + runtime.grace))
        self.tell = tell
        self.thorough = thorough
        self.sample = sample

    def examine(self) -> Examination:
        """Find everything. Changes nothing.

        Raises:
            WarehouseUnavailable: it cannot be read, or nothing at all is there.
        """
        entries = self.engine.listing()
        self.tell(f"{len(entries)} files and folders lie in the warehouse")
        files = {s.channel.name: self._files(s.channel.name) for s in self.catalog.channels()}
        looked = sum(f.files for f in files.values())
        if looked and not entries:
            raise self._nothing_there(looked)
        uploads, notes = self._uploads()
        damages = [*self._leftovers(), *self._lost(files), *self._orphans(entries), *uploads]
        counts = {
            "blocks": sum(f.blocks for f in files.values()),
            "files": looked,
            "entries": len(entries),
        }
        return Examination(tuple(damages), counts, notes)

    def verify(self) -> Examination:
        """Look at the files alone. Changes nothing.

        Raises:
            WarehouseUnavailable: it cannot be read.
        """
        files = {s.channel.name: self._files(s.channel.name) for s in self.catalog.channels()}
        counts = {"blocks": sum(f.blocks for f in files.values()), "files": sum(f.files for f in files.values())}
        return Examination(tuple(self._lost(files)), counts)

    def mend(self, damages: Iterable[Damage]) -> list[Outcome]:
        """Mend what there is a cure for here, after asking again whether it is still so."""
        found = list(damages)
        cures: dict[Cure, Callable[[Sequence[Damage]], Iterator[Outcome]]] = {
            "sweep": self._sweep,
            "give up": self._give_up,
            "set aside": self._set_aside,
            "abort": self._abort,
        }
        return [
            outcome
            for cure, carry_out in cures.items()
            if (some := [d for d in found if d.cure == cure])
            for outcome in carry_out(some)
        ]

    # finding

    def _leftovers(self) -> list[Damage]:
        now = self.catalog.now()
        found = (left_by(e, len(staged), now, self.grace, is_dead(e.owner)) for e, staged in self.catalog.leftovers())
        return [d for d in found if d is not None]

    def _files(self, channel: str) -> _Files:
        """Look at each file that a block of the channel lists; of a sample, at some."""
        there = [b for b in self.catalog.history(channel).blocks if b.manifest.outside is None]  # else others mind it
        listed = list({f.path: f for b in there for f in b.manifest.files}.values())
        if self.sample is not None and len(listed) > self.sample:
            listed = random.sample(listed, self.sample)
        wrong: dict[str, str] = {}
        files, done = iter(listed), 0
        look = partial(self.engine.defect_of, thorough=self.thorough)
        with ThreadPoolExecutor(AT_ONCE, "nova-status") as pool:
            while some := list(islice(files, _BATCH)):
                wrong |= {f.path: d for f, d in zip(some, pool.map(look, some), strict=True) if d is not None}
                done += len(some)
                if len(listed) > _BATCH:
                    self.tell(f"{channel}: {done} of {len(listed)} files looked at")
        return _Files(len(there), len(listed), wrong)

    def _lost(self, files: Mapping[str, _Files]) -> Iterator[Damage]:
        bindings = self.runtime.project.bindings
        for channel, looked in files.items():
            if not looked.wrong:
                continue
            # Asked after the files were looked at: what was collected meanwhile is nobody's loss.
            facts = self.catalog.upkeep(channel, retained(self.runtime, channel))
            readers = [b.name for b in bindings if channel in {c.name for c in b.reads}]
            writer = next((b.name for b in bindings if channel in {c.name for c in b.base_writes}), None)
            yield from lost_files(facts, looked.wrong, readers, writer)

    def _orphans(self, entries: Sequence[Entry]) -> list[Damage]:
        """What is listed by nobody. The catalog, and the marks, are asked after the warehouse was listed."""
        known, identity = self.catalog.known(), self.catalog.identity()
        return orphans(entries, known, self.engine.marks(), identity, self.catalog.now(), self.lying)

    def _uploads(self) -> tuple[list[Damage], tuple[str, ...]]:
        """Uploads that nobody goes on with; or why they were not looked at. The catalog is asked afterwards."""
        try:
            pending = self.engine.uploads()
        except NovaError as error:
            return [], (f"{error.what}: {error.next}",)
        if not pending:
            return [], ()
        known, identity = self.catalog.known(), self.catalog.identity()
        return unfinished(pending, known, self.engine.marks(), identity, self.catalog.now(), self.lying), ()

    # mending

    def _sweep(self, damages: Sequence[Damage]) -> Iterator[Outcome]:
        """Sweep; once more where something is left, since another process may have been at it (its rows are passed
        over)."""
        self.tell("sweeping what dead executions left")
        asked = {d.subject for d in damages}
        left, says = asked, ""
        for wait in _SWEEPS:
            time.sleep(wait)
            try:
                self.runtime.sweep()
            except NovaError as error:
                says = error.what
            left = asked & {d.subject for d in self._leftovers() if d.cure == "sweep"}
            if not left:
                break
        says = says or "another process is at it: nova doctor --repair again tells what is left"
        yield from (Outcome(d, d.subject not in left, says if d.subject in left else "") for d in damages)

    def _give_up(self, damages: Sequence[Damage]) -> Iterator[Outcome]:
        for damage in damages:
            channel = damage.subject.partition(" ")[0]
            gone = {
                b.id for b in self.catalog.give_up(channel, damage.concerns, retained(self.runtime, channel)).blocks
            }
            crash_point("repair.given_up")
            left = set(damage.concerns) & {b.id for b in self.catalog.history(channel).blocks}
            says = "somebody has come to need it meanwhile: nova doctor --repair again says who" if left else ""
            yield Outcome(damage, not left, says if gone or left else "it was collected meanwhile")

    def _set_aside(self, damages: Sequence[Damage]) -> Iterator[Outcome]:
        """Move away orphans that are orphans still, from a warehouse that is this catalog's alone still."""
        again = {d.subject for d in self._orphans(self.engine.listing()) if d.cure == "set aside"}
        for n, damage in enumerate(damages):
            if n and n % _BATCH == 0:
                self.tell(f"{n} of {len(damages)} orphans moved")
            if damage.subject not in again:
                yield Outcome(damage, True, "it is no orphan any more, and was left")
                continue
            crash_point("repair.moving")
            try:
                self.engine.set_aside(damage.subject)
            except NovaError as error:
                yield Outcome(damage, False, f"{error.what}: {error.found}")
            else:
                yield Outcome(damage, True)

    def _abort(self, damages: Sequence[Damage]) -> Iterator[Outcome]:
        for damage in damages:
            try:
                self.engine.abort_upload(Upload(damage.subject, damage.concerns[0], self.catalog.now()))
            except NovaError as error:
                yield Outcome(damage, False, f"{error.what}: {error.found}")
            else:
                yield Outcome(damage, True)

    # inside

    def _nothing_there(self, files: int) -> WarehouseUnavailable:
        return WarehouseUnavailable(
            f"the catalog lists {files} files, and nothing at all is in the warehouse",
            expected="the warehouse that this catalog's blocks were written into",
            next="see that it is mounted, and that NOVA_WAREHOUSE names it; nothing was changed",
        )
