"""Prepare a Dagster home once: ``python tools/init_dagster_home.py FOLDER``.

Two processes that are the first to use a new home at the same time spoil its databases for good (Alembic then finds
"more than one head"). So one process makes them, under a lock, before anything else is started on it.
"""

from __future__ import annotations

import fcntl
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main(home: Path) -> None:
    """Make ``home`` ready, unless it is; the file ``.initialised`` in it says so."""
    home.mkdir(parents=True, exist_ok=True)
    done = home / ".initialised"
    with (home / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        configured, shipped = home / "dagster.yaml", ROOT / "dagster.yaml"
        if not configured.exists():
            shutil.copyfile(shipped, configured)
        if not done.exists():
            create_databases(home)
        done.touch()


def create_databases(home: Path) -> None:
    """Have Dagster create the databases of runs, events and schedules."""
    from dagster import DagsterInstance

    with DagsterInstance.from_config(str(home)) as instance:
        instance.get_runs(limit=1)
        instance.all_asset_keys()
        instance.all_instigator_state()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
