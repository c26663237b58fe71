"""One pipeline as bindings and as plain assets: the same channels after each batch, however Dagster runs them:
``dagster.materialize``, ``dagster asset materialize`` and ``dg launch``.

The daemon of ``dg dev`` is in ``test_dagster_dev.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import dagster as dg
import pytest

from nova_assets.dagster_bridge import build_definitions
from nova_assets.engine.session import connect_server
from nova_assets.testing.world import for_tiny_queries
from nova_assets_tests.dagster_dev import ROOT
from nova_assets_tests.effort import EXHAUSTIVE
from nova_assets_tests.scenarios import shop_twice
from nova_assets_tests.scenarios.naive_shop import BATCHES, expected, held

pytestmark = [
    pytest.mark.spark,
    pytest.mark.dagster,
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore"),
]

ASSETS = "large,totals,large_twin,totals_twin"
COMMANDS = [["dg", "launch", "--assets"], ["dagster", "asset", "materialize", "--select"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a project. Its commands share one Spark server."""
    made = tmp_path_factory.mktemp("same_shop")
    (made / "pyproject.toml").write_text('[tool.nova]\nspark = "server"\n')
    yield made
    connect_server.stop_server(made / ".nova")


def settings_of(deployment: Path) -> dict[str, str]:
    return {"catalog": f"sqlite:///{deployment}/c.db", "warehouse": str(deployment / "wh")}


def definitions(deployment: Path) -> dg.Definitions:
    """Definitions for this process, with the Spark session that other tests may have started in it."""
    assets = [shop_twice.keep_large_twin, shop_twice.add_up_twin]
    how = settings_of(deployment)
    return build_definitions(shop_twice.project, assets=assets, spark="local", root=deployment.parent, **how)  # type: ignore[arg-type]


def by_materialize(deployment: Path, partition: str, batch: int) -> None:
    defs = definitions(deployment)
    with dg.DagsterInstance.from_config(str(deployment / "home")) as instance:
        ran = dg.materialize(
            list(defs.assets or ()),  # type: ignore[arg-type]
            selection=ASSETS.split(","),
            resources=defs.resources,
            partition_key=partition,
            instance=instance,
        )
    assert ran.success


def by_commands(deployment: Path, partition: str, batch: int) -> None:
    """The two commands in turn, each in a process of its own."""
    command = COMMANDS[batch % 2]
    settings = {f"NOVA_{k.upper()}": v for k, v in settings_of(deployment).items()}
    environment = {**os.environ, **settings, "DAGSTER_HOME": str(deployment / "home"), "PYTHONPATH": str(ROOT)}
    program = str(Path(sys.executable).with_name(command[0]))
    whole = [program, *command[1:], ASSETS, "--partition", partition, "-f", shop_twice.__file__]
    done = subprocess.run(whole, env=environment, cwd=deployment.parent, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize(
    ("run", "batches"),
    [
        (by_materialize, 2),
        pytest.param(by_materialize, 3, marks=EXHAUSTIVE),
        pytest.param(by_commands, 3, marks=EXHAUSTIVE),
    ],
)
def test_bindings_and_plain_assets_hold_what_a_recompute_gives(
    folder: Path, run: Callable[[Path, str, int], None], batches: int
) -> None:
    deployment = folder / f"{run.__name__}_{batches}"
    (deployment / "home").mkdir(parents=True)
    with ExitStack() as stack:
        store = stack.enter_context(definitions(deployment).resources["nova"].store())  # type: ignore[index,union-attr]
        if run is by_materialize:
            stack.enter_context(for_tiny_queries(store))
        store.register(store.project)
        for count, (partition, rows) in enumerate(BATCHES[:batches], start=1):
            store.insert("orders", rows)
            run(deployment, partition, count)
            assert (held(store), held(store, "_twin")) == (expected(count), expected(count)), f"after batch {count}"
        assert {c.seq for c in store.cursors()} == {2, batches}
