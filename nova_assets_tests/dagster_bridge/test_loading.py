"""Loading definitions: the work grows with the number of bindings, not with its square."""

from __future__ import annotations

import cProfile
import pstats
import random
from pathlib import Path

import dagster as dg
import pytest

import nova_assets as nova
from nova_assets.dagster_bridge import build_definitions

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore")]

DDL = ", ".join(f"c{n} string" for n in range(20))


def project(size: int) -> nova.Project:
    """Bindings in a mesh: each reads up to three channels of those before, and writes one."""
    rng = random.Random(size)
    channels = [nova.Channel(f"channel{n}", schema=DDL) for n in range(size + 1)]
    bindings = []
    for n in range(size):
        read = rng.sample(channels[: n + 1], min(n + 1, 3))
        step = nova.task(name="step", consumes=[nova.new(c) for c in read], produces=nova.delta(channels[n + 1]))(
            lambda **frames: None
        )
        bindings.append(nova.bind(nova.Workflowette(f"b{n}", [step]), when=nova.on_data(*(c.name for c in read))))
    return nova.Project(bindings)


def calls(size: int, root: Path) -> int:
    """Function calls that it takes to define a project, and to load it with all of its jobs."""
    profile = cProfile.Profile()
    with profile:
        made = build_definitions(project(size), catalog=f"sqlite:///{root}/c.db", warehouse=str(root / "wh"))
        assert len(made.get_repository_def().get_all_jobs()) == size + 2
    total: int = pstats.Stats(profile).total_calls  # type: ignore[attr-defined]
    return total


@pytest.mark.slow
def test_four_times_as_many_bindings_take_four_times_the_work(tmp_path: Path) -> None:
    calls(2, tmp_path)  # imports and caches
    few, many = calls(20, tmp_path), calls(80, tmp_path)
    assert many < 4.4 * few, f"{few} calls for 20 bindings, {many} for 80"


def test_a_job_of_a_binding_holds_its_own_assets_and_all_their_checks(tmp_path: Path) -> None:
    @dg.asset_check(asset="channel1", additional_deps=["channel0"])
    def of_the_user() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    made = build_definitions(project(5), catalog=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh"))
    layer = dg.Definitions.merge(made, dg.Definitions(asset_checks=[of_the_user])).resolve_job_def("b0").asset_layer
    assert layer.executable_asset_keys == {dg.AssetKey("channel1")}
    assert layer.selected_asset_keys == {dg.AssetKey("channel1")}
    assert {key.name for key in layer.asset_graph.asset_check_keys} == {"of_the_user"}
