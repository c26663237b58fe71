"""Repair of inconsistencies between catalog and warehouse: find, explain, and repair them where possible.

Finding changes nothing. Repairing checks each damage again before it touches anything. Live files are never taken for
leftovers, since files are recorded before they are written (R3), and the warehouse is listed before the catalog is
queried.
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
from nova_assets.model.damage import Cure, Damage, DamageReport, RepairOutcome, UnfinishedUpload, WarehouseEntry
from nova_assets.nova_error import NovaError
from nova_assets.plan.lost_files import damage_of_lost_files
from nova_assets.plan.repair import leftover_damage, orphan_damage, unfinished_upload_damage
from nova_assets.store.retention import channel_retention_seconds

ProgressCallback = Callable[[str], None]

PARALLEL_STATUS_CALLS = 16
"""Concurrent status calls. On a remote store, each call mostly waits."""

_SWEEP_WAITS = (0.0, 0.2, 1.0)
"""Seconds to wait before each attempt to sweep."""

_FILES_PER_PROGRESS_MESSAGE = 1000
"""Number of files between two progress messages."""


@dataclass(frozen=True, slots=True)
class _FileCheck:
    """Result of checking the files of one channel.

    Args:
        defect_by_path: path -> defect, for files that differ from their record.
    """

    block_count: int
    file_count: int
    defect_by_path: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _UploadCheck:
    """Result of checking the unfinished uploads.

    Args:
        damages: abandoned uploads.
        notes: reasons why the uploads could not be examined.
    """

    damages: tuple[Damage, ...] = ()
    notes: tuple[str, ...] = ()


class Repair:
    """Examines and repairs one deployment, except for its Dagster side.

    Args:
        deletion_delay: minimum age in seconds of a warehouse entry that may count as an orphan.
        on_progress: called with progress messages.
        thorough: read all bytes of the files and compare them with their digests.
        sample_size: number of random files to check in each channel. None for all.
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
        """Find all damages. Changes nothing.

        Raises:
            WarehouseUnavailable: the warehouse cannot be read, or it is completely empty.
        """
        entries = self.engine.warehouse.list_block_entries()
        self.on_progress(f"{len(entries)} files and folders are in the warehouse")
        checks_by_channel = {
            s.channel.name: self._check_channel_files(s.channel.name) for s in self.catalog.definitions.channels()
        }
        file_count = sum(f.file_count for f in checks_by_channel.values())
        if file_count and not entries:
            raise self._empty_warehouse_error(file_count)
        upload_check = self._check_unfinished_uploads()
        damages = [
            *self._leftover_damages(),
            *self._lost_file_damages(checks_by_channel),
            *self._orphan_damages(entries),
            *upload_check.damages,
        ]
        counts = {
            "blocks": sum(f.block_count for f in checks_by_channel.values()),
            "files": file_count,
            "entries": len(entries),
        }
        return DamageReport(tuple(damages), counts, upload_check.notes)

    def verify_files(self) -> DamageReport:
        """Check only the files that the catalog lists. Changes nothing.

        Raises:
            WarehouseUnavailable: the warehouse cannot be read.
        """
        checks_by_channel = {
            s.channel.name: self._check_channel_files(s.channel.name) for s in self.catalog.definitions.channels()
        }
        counts = {
            "blocks": sum(f.block_count for f in checks_by_channel.values()),
            "files": sum(f.file_count for f in checks_by_channel.values()),
        }
        return DamageReport(tuple(self._lost_file_damages(checks_by_channel)), counts)

    def repair_damages(self, damages: Iterable[Damage]) -> list[RepairOutcome]:
        """Repair the damages with a known cure, after checking that they still exist.

        Raises:
            CopyUndecided: the catalog is a copy of another one, to which the files may belong.
        """
        all_damages = list(damages)
        if all_damages:
            self.runtime.staging.warehouse_check.check_may_delete("nothing is repaired")
        repair_by_cure: dict[Cure, Callable[[Sequence[Damage]], Iterator[RepairOutcome]]] = {
            "sweep": self._sweep_leftovers,
            "give up": self._give_up_blocks,
            "set aside": self._set_orphans_aside,
            "abort": self._abort_uploads,
        }
        return [
            outcome
            for cure, repair in repair_by_cure.items()
            if (curable_damages := [d for d in all_damages if d.cure == cure])
            for outcome in repair(curable_damages)
        ]

    # finding

    def _leftover_damages(self) -> list[Damage]:
        now = self.catalog.now()
        candidates = (
            leftover_damage(e, len(staged), now, self.sweep_delay, is_owner_dead(e.owner))
            for e, staged in self.catalog.staging.executions_with_blocks()
        )
        return [d for d in candidates if d is not None]

    def _check_channel_files(self, channel: str) -> _FileCheck:
        """Check each file that a block of the channel lists, or a random sample of them."""
        blocks = [
            b for b in self.catalog.histories.of(channel).blocks if b.manifest.external_folder is None
        ]  # external files are not ours to check
        files_to_check = list({f.path: f for b in blocks for f in b.manifest.files}.values())
        if self.sample_size is not None and len(files_to_check) > self.sample_size:
            files_to_check = random.sample(files_to_check, self.sample_size)
        defect_by_path: dict[str, str] = {}
        remaining_files, checked_count = iter(files_to_check), 0
        find_defect = partial(self.engine.warehouse.find_file_defect, thorough=self.thorough)
        with ThreadPoolExecutor(PARALLEL_STATUS_CALLS, "nova-status") as pool:
            while batch := list(islice(remaining_files, _FILES_PER_PROGRESS_MESSAGE)):
                defect_by_path |= {
                    f.path: d for f, d in zip(batch, pool.map(find_defect, batch), strict=True) if d is not None
                }
                checked_count += len(batch)
                if len(files_to_check) > _FILES_PER_PROGRESS_MESSAGE:
                    self.on_progress(f"{channel}: {checked_count} of {len(files_to_check)} files checked")
        return _FileCheck(len(blocks), len(files_to_check), defect_by_path)

    def _lost_file_damages(self, checks_by_channel: Mapping[str, _FileCheck]) -> Iterator[Damage]:
        bindings = self.runtime.project.bindings
        for channel, file_check in checks_by_channel.items():
            if not file_check.defect_by_path:
                continue
            # Queried after the files were checked: a file that was collected meanwhile is no loss.
            retention_state = self.catalog.garbage.retention_state(
                channel, channel_retention_seconds(self.runtime, channel)
            )
            reading_bindings = [b.name for b in bindings if channel in {c.name for c in b.reads}]
            writing_binding = next((b.name for b in bindings if channel in {c.name for c in b.base_writes}), None)
            yield from damage_of_lost_files(
                retention_state, file_check.defect_by_path, reading_bindings, writing_binding
            )

    def _orphan_damages(self, entries: Sequence[WarehouseEntry]) -> list[Damage]:
        """Warehouse entries that no catalog lists. Catalog and markers are read after the warehouse was listed."""
        catalog_paths, catalog_id = self.catalog.repairs.catalog_paths(), self.catalog.identity.get()
        return orphan_damage(
            entries,
            catalog_paths,
            self.engine.warehouse.catalogs_with_marker(),
            catalog_id,
            self.catalog.now(),
            self.min_orphan_age,
        )

    def _check_unfinished_uploads(self) -> _UploadCheck:
        """Abandoned uploads. The catalog is read after the listing."""
        try:
            uploads = self.engine.warehouse.unfinished_uploads()
        except NovaError as error:
            return _UploadCheck(notes=(f"{error.what}: {error.next}",))
        if not uploads:
            return _UploadCheck()
        catalog_paths, catalog_id = self.catalog.repairs.catalog_paths(), self.catalog.identity.get()
        damages = unfinished_upload_damage(
            uploads,
            catalog_paths,
            self.engine.warehouse.catalogs_with_marker(),
            catalog_id,
            self.catalog.now(),
            self.min_orphan_age,
        )
        return _UploadCheck(tuple(damages))

    # repairing

    def _sweep_leftovers(self, damages: Sequence[Damage]) -> Iterator[RepairOutcome]:
        """Delete the staged files of dead executions.

        Retried if something is left, since the sweep skips rows that another process is sweeping.
        """
        self.on_progress("deleting the staged files of dead executions")
        subjects = {d.subject for d in damages}
        remaining, reason = subjects, ""
        for wait in _SWEEP_WAITS:
            time.sleep(wait)
            try:
                self.runtime.delete_dead_staging()
            except NovaError as error:
                reason = error.what
            remaining = subjects & {d.subject for d in self._leftover_damages() if d.cure == "sweep"}
            if not remaining:
                break
        reason = reason or "another process is deleting it; run nova doctor --repair again to see the result"
        yield from (
            RepairOutcome(d, d.subject not in remaining, reason if d.subject in remaining else "") for d in damages
        )

    def _give_up_blocks(self, damages: Sequence[Damage]) -> Iterator[RepairOutcome]:
        for damage in damages:
            channel = damage.subject.partition(" ")[0]
            collected_ids = {
                b.id
                for b in self.catalog.repairs.collect_damaged_blocks(
                    channel, damage.concerns, channel_retention_seconds(self.runtime, channel)
                ).blocks
            }
            crash_point("repair.given_up")
            remaining_ids = set(damage.concerns) & {b.id for b in self.catalog.histories.of(channel).blocks}
            reason = (
                "a reader needs the block now; run nova doctor --repair again to see which reader"
                if remaining_ids
                else ""
            )
            yield RepairOutcome(
                damage,
                not remaining_ids,
                reason if collected_ids or remaining_ids else "the block was collected meanwhile",
            )

    def _set_orphans_aside(self, damages: Sequence[Damage]) -> Iterator[RepairOutcome]:
        """Move orphans away, if they are still orphans and the warehouse still belongs to this catalog alone."""
        current_orphans = {
            d.subject for d in self._orphan_damages(self.engine.warehouse.list_block_entries()) if d.cure == "set aside"
        }
        for n, damage in enumerate(damages):
            if n and n % _FILES_PER_PROGRESS_MESSAGE == 0:
                self.on_progress(f"{n} of {len(damages)} orphans moved")
            if damage.subject not in current_orphans:
                yield RepairOutcome(damage, True, "it is no longer an orphan, and was not moved")
                continue
            crash_point("repair.moving")
            try:
                self.engine.warehouse.move_to_orphans(damage.subject)
            except NovaError as error:
                yield RepairOutcome(damage, False, f"{error.what}: {error.found}")
            else:
                yield RepairOutcome(damage, True)

    def _abort_uploads(self, damages: Sequence[Damage]) -> Iterator[RepairOutcome]:
        for damage in damages:
            try:
                self.engine.warehouse.abort_unfinished_upload(
                    UnfinishedUpload(damage.subject, damage.concerns[0], self.catalog.now())
                )
            except NovaError as error:
                yield RepairOutcome(damage, False, f"{error.what}: {error.found}")
            else:
                yield RepairOutcome(damage, True)

    # errors

    def _empty_warehouse_error(self, listed_files: int) -> WarehouseUnavailable:
        return WarehouseUnavailable(
            f"the catalog lists {listed_files} files, but the warehouse is empty",
            expected="the warehouse that contains the blocks of this catalog",
            next="check that the warehouse is mounted, and that NOVA_WAREHOUSE points to it; nothing was changed",
        )
