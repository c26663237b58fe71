"""The daemon's own iterations over a real deployment on disk, at a time that the test says.

A file of definitions is loaded, its sensors are evaluated and runs executed by Dagster's own code in this process; only
the engine is a stub. Run as a program it does one iteration, and is killed where the environment says.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.scheduler.instigation import InstigatorType
from dagster._core.test_utils import freeze_time
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster._daemon.sensor import execute_sensor_iteration

from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.crash_points import crash_point
from nova_assets.dagster_bridge import resources
from nova_assets.store.store import Store
from nova_assets_tests.forked import run_python
from nova_assets_tests.stub_engine import StubEngine

HOME = """
run_launcher:
  module: dagster._core.launcher.sync_in_memory_run_launcher
  class: SyncInMemoryRunLauncher
run_coordinator:
  module: dagster._core.run_coordinator
  class: DefaultRunCoordinator
telemetry:
  enabled: false
"""


class Daemon:
    """A deployment in a folder: a Dagster home, a catalog, a warehouse, and one file of definitions.

    Args:
        root: the folder.
        now: where the clock stands.
        schema: DDL of frames without rows.
    """

    def __init__(self, root: Path, now: datetime, schema: str = "k bigint, v bigint") -> None:
        self.root = root
        self.schema = schema
        self.now = now
        self.catalog = f"sqlite:///{root}/c.db"
        self.warehouse = str(root / "wh")
        self.home = root / "home"
        self.file = root / "definitions_of_test.py"
        self.held = ExitStack()
        if not self.home.exists():
            self.home.mkdir()
            (self.home / "dagster.yaml").write_text(HOME)

    def opener(self, project: Any = None, spark: Any = None, settings: Any = None) -> Store:
        """Takes the place of ``nova.open`` in the resource."""
        hook = partial(crash_point, "commit.inside")
        catalog = open_catalog(settings.catalog, clock=lambda: self.now, on_before_commit=hook)
        return Store(settings, project, catalog, StubEngine(settings.warehouse, self.schema))

    def later(self, **by: float) -> None:
        self.now += timedelta(**by)

    def iterate(self, crash: dict[str, Any] | None = None) -> None:
        """Evaluate every sensor once, and execute what they ask for."""
        log = logging.getLogger("dagster.daemon")
        with freeze_time(self.now):
            list(execute_sensor_iteration(self.workspace, log, None, None, debug_crash_flags=crash))

    @cached_property
    def instance(self) -> dg.DagsterInstance:
        return self.held.enter_context(dg.DagsterInstance.from_config(str(self.home)))

    @cached_property
    def workspace(self) -> WorkspaceProcessContext:
        target = LoadableTargetOrigin(python_file=str(self.file), executable_path=sys.executable)
        origin = InProcessCodeLocationOrigin(target, location_name="test")
        target_of_all = InProcessWorkspaceLoadTarget(origin)
        return self.held.enter_context(WorkspaceProcessContext(self.instance, target_of_all))

    def is_killed(self, point: str) -> None:
        """One iteration in a process that dies at a point: of ours, or of Dagster's (in capitals)."""
        environment = {"TEST_NOW": self.now.isoformat(), "TEST_ROOT": str(self.root)}
        environment["TEST_DAGSTER_POINT" if point.isupper() else "NOVA_CRASH_AT"] = point
        done = run_python(["-m", __name__], environment)
        assert done.returncode == -signal.SIGKILL, f"it did not come to {point}: {done.stderr[-2000:]}"

    def forgets(self) -> None:
        """What Dagster knows of its sensors is lost: their cursors and their ticks."""
        assert self.instance.all_instigator_state(instigator_type=InstigatorType.SENSOR)
        self.instance.schedule_storage.wipe()  # type: ignore[union-attr]

    def runs(self) -> list[tuple[str, str]]:
        """Run keys, oldest first, and what became of their runs."""
        return [(r.tags.get("dagster/run_key", ""), r.status.value) for r in reversed(self.instance.get_runs())]

    def tags(self) -> list[dict[str, str]]:
        return [dict(r.tags) for r in reversed(self.instance.get_runs())]


def main() -> None:
    daemon = Daemon(Path(os.environ["TEST_ROOT"]), datetime.fromisoformat(os.environ["TEST_NOW"]).astimezone(UTC))
    resources.open_store = daemon.opener
    point = os.environ.get("TEST_DAGSTER_POINT")
    daemon.iterate({"w_sensor": {point: signal.SIGKILL}} if point else None)
    json.dump(daemon.runs(), sys.stdout)


if __name__ == "__main__":
    main()
