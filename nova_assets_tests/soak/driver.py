"""Carries out a plan: batches go in, processes are killed, each at its time."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from queue import Queue

import nova_assets as nova
from nova_assets.model.commit import Commit
from nova_assets_tests.soak.batches import Batch
from nova_assets_tests.soak.plan import Insert, Kill, Plan
from nova_assets_tests.soak.verdict import key_of
from nova_assets_tests.soak.world import World

PATIENCE = 300  # seconds in which an insert has to take, whatever is killed meanwhile
_BETWEEN_TRIES = 1.0


class Driver:
    """What a soak does to a deployment.

    Args:
        store: of the deployment, opened by this process.
        inserted: channel -> its batches.
        tell: one line for each action.
    """

    def __init__(
        self, world: World, store: nova.Store, inserted: Mapping[str, list[Batch]], tell: Callable[[str], None]
    ) -> None:
        self._world = world
        self._store = store
        self._inserted = inserted
        self._tell = tell
        self.killed: Counter[str] = Counter()
        self.repeated = 0

    def carry_out(self, plan: Plan) -> None:
        """All of a plan. Inserts and kills do not wait for each other: what is killed may be needed for an insert."""
        began = time.monotonic()
        failed: Queue[BaseException] = Queue()
        inserting = threading.Thread(target=self._insert_all, args=(plan, began, failed), name="inserts", daemon=True)
        inserting.start()
        for kill in plan.kills:
            _wait_for(began + kill.at)
            self._kill(kill, began)
        inserting.join()
        if not failed.empty():
            raise failed.get()
        _wait_for(began + plan.seconds)
        for insert in plan.last:
            self._insert(insert)

    def _insert_all(self, plan: Plan, began: float, failed: Queue[BaseException]) -> None:
        try:
            for insert in plan.inserts:
                _wait_for(began + insert.at)
                self._insert(insert)
        except BaseException as error:
            failed.put(error)

    def _insert(self, insert: Insert) -> None:
        """One batch, given again and again under the same key until it takes."""
        batch, key = self._inserted[insert.channel][insert.nth], key_of(insert.channel, insert.nth)
        until = time.monotonic() + PATIENCE
        while True:
            try:
                commit: Commit = self._store.insert(insert.channel, list(batch.rows), batch.kind, key)
                break
            except Exception as error:
                if time.monotonic() > until:
                    raise
                self.repeated += 1
                said = (str(error).splitlines() or [""])[0]
                self._tell(f"insert {key} is repeated: {type(error).__name__}: {said[:160]}")
                time.sleep(_BETWEEN_TRIES)
        self._tell(f"insert {key}: {batch.kind} of {len(batch.rows)} rows is number {commit.numbers[insert.channel]}")

    def _kill(self, kill: Kill, began: float) -> None:
        victims = self._world.victims(kill.role, kill.pick, began + kill.until - time.monotonic())
        for process in victims:
            process.kill()
        self.killed[kill.role] += bool(victims)
        self._tell(f"kill {kill.role}: {', '.join(f'process {p.pid}' for p in victims) or 'there was none'}")


def _wait_for(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))
