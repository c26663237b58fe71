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
from nova_assets.errors import WarehouseUnavailable
from nova_assets.execution.lease import is_owner_dead
from nova_assets.execution.runtime import Runtime
from nova_assets.model.damage import Cure, Damage, DamageReport, RepairOutcome
from nova_assets.model.warehouse_contents import UnfinishedUpload, WarehouseEntry
from nova_assets.nova_error import NovaError
from nova_assets.operations.maintenance import channel_retention_seconds
from nova_assets.plan.lost_files import damage_of_lost_files
from nova_assets.plan.repair import leftover_damage, orphan_damage, unfinished_upload_damage

ProgressCallback = Callable[[str], None]

PARALLEL_STATUS_CALLS = 16
"""Status calls under way at a time: on a store far away each is a wait, not work."""

_SWEEP_WAITS = (0.0, 0.2, 1.0)
"""Seconds to wait before each attempt to sweep."""

_BATCH = 1000
"""Files between two words about how far it has come."""


@dataclass(frozen=True, slots=True)
class _FileCheck:
    """Files of one channel that were looked at.

    Args:
        defect_by_path: path -> what is wrong with it; of those that are not as they were written.
    """

    block_count: int
    file_count: int
    defect_by_path: Mapping[str, str]


class Repair:
    """Examines and mends one deployment, without Dagster's side of it.

    Args:
        gc_grace: seconds for which what lies in the warehouse is left alone, whoever listed it before.
        on_progress: hears how far it has come.
        thorough: all bytes of files are read, and compared with their digests.
        sample_size: of each channel, only so many files are looked at, taken at random; None for all.
    """

    def __init__(
        self,
        runtime: Runtime,
        deletion_delay: float,
        on_progress: ProgressCallback = lambda text: None,
        *,
        thorough: bool = False,
        sample_size: int | None = None,
    ) -> None:
        self.runtime = runtime
        self.catalog = runtime.catalog
        self.engine = runtime.engine
        self.sweep_delay = timedelta(seconds=runtime.sweep_delay)
        self.min_orphan_age = timedelta(seconds=max(deletion_delay, runtime.lease + runtime.sweep_delay))
        self.on_progress = on_progress
        self.thorough = thorough
        self.sample_size = sample_size

    def find_damages(self) -> DamageReport:
        """Find everything. Changes nothing.

        Raises:
            WarehouseUnavailable: it cannot be read, or nothing at all is there.
        """
        entries = self.engine.list_warehouse()
        self.on_progress(f"{len(entries)} files and folders lie in the warehouse")
        files = {s.channel.name: self._check_channel_files(s.channel.name) for s in self.catalog.channels()}
        looked = sum(f.file_count for f in files.values())
        if looked and not entries:
            raise self._empty_warehouse_error(looked)
        uploads, notes = self._unfinished_upload_damages()
        damages = [*self._leftover_damages(), *self._lost_file_damages(files), *self._orphan_damages(entries), *uploads]
        counts = {
            "blocks": sum(f.block_count for f in files.values()),
            "files": looked,
            "entries": len(entries),
        }
        return DamageReport(tuple(damages), counts, notes)

    def verify_files(self) -> DamageReport:
        """Look at the files alone. Changes nothing.

        Raises:
            WarehouseUnavailable: it cannot be read.
        """
        files = {s.channel.name: self._check_channel_files(s.channel.name) for s in self.catalog.channels()}
        counts = {
            "blocks": sum(f.block_count for f in files.values()),
            "files": sum(f.file_count for f in files.values()),
        }
        return DamageReport(tuple(self._lost_file_damages(files)), counts)

    def repair_damages(self, damages: Iterable[Damage]) -> list[RepairOutcome]:
        """Mend what there is a cure for here, after asking again whether it is still so."""
        found = list(damages)
        cures: dict[Cure, Callable[[Sequence[Damage]], Iterator[RepairOutcome]]] = {
            "sweep": self._sweep_leftovers,
            "give up": self._give_up_blocks,
            "set aside": self._set_orphans_aside,
            "abort": self._abort_uploads,
        }
        return [
            outcome
            for cure, carry_out in cures.items()
            if (some := [d for d in found if d.cure == cure])
            for outcome in carry_out(some)
        ]

    # finding

    def _leftover_damages(self) -> list[Damage]:
        now = self.catalog.now()
        found = (
            leftover_damage(e, len(staged), now, self.sweep_delay, is_owner_dead(e.owner))
            for e, staged in self.catalog.executions_with_staged_blocks()
        )
        return [d for d in found if d is not None]

    def _check_channel_files(self, channel: str) -> _FileCheck:
        """Look at each file that a block of the channel lists; of a sample, at some."""
        blocks = [
            b for b in self.catalog.history(channel).blocks if b.manifest.external_folder is None
        ]  # else others mind it
        listed = list({f.path: f for b in blocks for f in b.manifest.files}.values())
        if self.sample_size is not None and len(listed) > self.sample_size:
            listed = random.sample(listed, self.sample_size)
        wrong: dict[str, str] = {}
        files, done = iter(listed), 0
        look = partial(self.engine.file_defect, thorough=self.thorough)
        with ThreadPoolExecutor(PARALLEL_STATUS_CALLS, "nova-status") as pool:
            while some := list(islice(files, _BATCH)):
                wrong |= {f.path: d for f, d in zip(some, pool.map(look, some), strict=True) if d is not None}
                done += len(some)
                if len(listed) > _BATCH:
                    self.on_progress(f"{channel}: {done} of {len(listed)} files looked at")
        return _FileCheck(len(blocks), len(listed), wrong)

    def _lost_file_damages(self, checks_by_channel: Mapping[str, _FileCheck]) -> Iterator[Damage]:
        bindings = self.runtime.project.bindings
        for channel, file_check in checks_by_channel.items():
            if not file_check.defect_by_path:
                continue
            # Asked after the files were looked at: what was collected meanwhile is nobody's loss.
            retention_state = self.catalog.retention_state(channel, channel_retention_seconds(self.runtime, channel))
            readers = [b.name for b in bindings if channel in {c.name for c in b.reads}]
            writer = next((b.name for b in bindings if channel in {c.name for c in b.base_writes}), None)
            yield from damage_of_lost_files(retention_state, file_check.defect_by_path, readers, writer)

    def _orphan_damages(self, entries: Sequence[WarehouseEntry]) -> list[Damage]:
        """What is listed by nobody. The catalog, and the marks, are asked after the warehouse was listed."""
        known, identity = self.catalog.known_paths(), self.catalog.identity()
        return orphan_damage(
            entries, known, self.engine.catalog_identities(), identity, self.catalog.now(), self.min_orphan_age
        )

    def _unfinished_upload_damages(self) -> tuple[list[Damage], tuple[str, ...]]:
        """Uploads that nobody goes on with; or why they were not looked at. The catalog is asked afterwards."""
        try:
            pending = self.engine.unfinished_uploads()
        except NovaError as error:
            return [], (f"{error.what}: {error.next}",)
        if not pending:
            return [], ()
        known, identity = self.catalog.known_paths(), self.catalog.identity()
        return unfinished_upload_damage(
            pending, known, self.engine.catalog_identities(), identity, self.catalog.now(), self.min_orphan_age
        ), ()

    # mending

    def _sweep_leftovers(self, damages: Sequence[Damage]) -> Iterator[RepairOutcome]:
        """Sweep; once more where something is left, since another process may have been at it (its rows are passed
        over)."""
        self.on_progress("sweeping what dead executions left")
        subjects = {d.subject for d in damages}
        left, says = subjects, ""
        for wait in _SWEEP_WAITS:
            time.sleep(wait)
            try:
                self.runtime.delete_dead_staging()
            except NovaError as error:
                says = error.what
            left = subjects & {d.subject for d in self._leftover_damages() if d.cure == "sweep"}
            if not left:
                break
        says = says or "another process is at it: nova doctor --repair again tells what is left"
        yield from (RepairOutcome(d, d.subject not in left, says if d.subject in left else "") for d in damages)

    def _give_up_blocks(self, damages: Sequence[Damage]) -> Iterator[RepairOutcome]:
        for damage in damages:
            channel = damage.subject.partition(" ")[0]
            gone = {
                b.id
                for b in self.catalog.collect_damaged_blocks(
                    channel, damage.concerns, channel_retention_seconds(self.runtime, channel)
                ).blocks
            }
            crash_point("repair.given_up")
            left = set(damage.concerns) & {b.id for b in self.catalog.history(channel).blocks}
            says = "somebody has come to need it meanwhile: nova doctor --repair again says who" if left else ""
            yield RepairOutcome(damage, not left, says if gone or left else "it was collected meanwhile")

    def _set_orphans_aside(self, damages: Sequence[Damage]) -> Iterator[RepairOutcome]:
        """Move away orphans that are orphans still, from a warehouse that is this catalog's alone still."""
        again = {d.subject for d in self._orphan_damages(self.engine.list_warehouse()) if d.cure == "set aside"}
        for n, damage in enumerate(damages):
            if n and n % _BATCH == 0:
                self.on_progress(f"{n} of {len(damages)} orphans moved")
            if damage.subject not in again:
                yield RepairOutcome(damage, True, "it is no orphan any more, and was left")
                continue
            crash_point("repair.moving")
            try:
                self.engine.move_to_orphans(damage.subject)
            except NovaError as error:
                yield RepairOutcome(damage, False, f"{error.what}: {error.found}")
            else:
                yield RepairOutcome(damage, True)

    def _abort_uploads(self, damages: Sequence[Damage]) -> Iterator[RepairOutcome]:
        for damage in damages:
            try:
                self.engine.abort_upload(UnfinishedUpload(damage.subject, damage.concerns[0], self.catalog.now()))
            except NovaError as error:
                yield RepairOutcome(damage, False, f"{error.what}: {error.found}")
            else:
                yield RepairOutcome(damage, True)

    # inside

    def _empty_warehouse_error(self, listed_files: int) -> WarehouseUnavailable:
        return WarehouseUnavailable(
            f"the catalog lists {listed_files} files, and nothing at all is in the warehouse",
            expected="the warehouse that this catalog's blocks were written into",
            next="see that it is mounted, and that NOVA_WAREHOUSE names it; nothing was changed",
        )
