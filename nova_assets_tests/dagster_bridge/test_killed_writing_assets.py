"""SIGKILL at each named point of a run of a plain asset that writes two channels (R1 to R4)."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest
from dagster import build_reconstructable_job

from nova_assets.errors import SettingsError
from nova_assets.settings import load_settings
from nova_assets.wiring.open_store import load_project
from nova_assets_tests.dagster_bridge.writing_asset_worker import definitions, run_both
from nova_assets_tests.effort import long_except
from nova_assets_tests.forked import run_python

WORKER = "nova_assets_tests.dagster_bridge.writing_asset_worker"
pytestmark = [pytest.mark.dagster, pytest.mark.crash, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

POINTS = ["begin.after", "stage.written", "commit.before", "commit.inside"]
DURABLE = ["commit.after", "publish.before"]


@pytest.mark.parametrize("point", long_except([*POINTS, *DURABLE], "commit.after"))
def test_a_killed_run_publishes_both_channels_or_none(tmp_path: Path, point: str) -> None:
    store = definitions(tmp_path).resources["nova"].store()  # type: ignore[index,union-attr]
    store.register(store.project)
    store.insert("orders", [{"shop": "a", "amount": 1}, {"shop": "b", "amount": 2}])
    killed = run_python(["-m", WORKER, str(tmp_path)], {"NOVA_CRASH_AT": point})
    assert killed.returncode == -9, killed.stderr[-2000:]

    def amounts(channel: str) -> list[int]:
        return sorted(r["amount"] for r in store.read(channel).to_arrow().to_pylist())

    expected = [1, 2] if point in DURABLE else []
    assert (amounts("listed"), amounts("latest")) == (expected, expected)
    with dg.DagsterInstance.local_temp(str(tmp_path / "home")) as instance:
        for run in instance.get_runs():  # as the daemon does with a run whose process is gone
            instance.report_run_failed(run)
    store.insert("orders", [{"shop": "c", "amount": 3}])
    assert run_both(tmp_path), "the next run takes over"
    assert (amounts("listed"), amounts("latest")) == ([1, 2, 3], [1, 2, 3])
    assert [c.seq for c in store.cursors()] == [2]
    store.close()


def test_a_run_that_continues_a_failed_run_has_its_pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = definitions(tmp_path).resources["nova"].store()  # type: ignore[index,union-attr]
    store.register(store.project)
    store.insert("orders", [{"shop": "a", "amount": 1}])
    (tmp_path / "home").mkdir()
    (tmp_path / "broken").touch()
    monkeypatch.setenv("NOVA_TEST_BROKEN", str(tmp_path / "broken"))
    job = build_reconstructable_job(WORKER, "job_of", (str(tmp_path),))
    with dg.DagsterInstance.local_temp(str(tmp_path / "home")) as instance:
        failed = dg.execute_job(job, instance=instance)
        assert not failed.success
        store.insert("orders", [{"shop": "b", "amount": 2}])
        again = dg.execute_job(
            job,
            instance=instance,
            reexecution_options=dg.ReexecutionOptions.from_failure(failed.run_id, instance),
        )
        assert again.success
        assert store.read("listed").to_arrow().to_pylist() == [{"shop": "a", "amount": 1}], "as the first run read it"
        assert dg.execute_job(job, instance=instance).success
        assert store.read("listed").to_arrow().num_rows == 2
    store.close()


@pytest.mark.core
def test_commands_know_the_assets_of_definitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nova_assets_tests.dagster_bridge import writing_asset_worker

    monkeypatch.setattr(writing_asset_worker, "defs", definitions(tmp_path), raising=False)
    project = load_project(load_settings(project=f"{WORKER}:defs"))
    assert project is not None and [b.name for b in project.bindings] == ["both"]
    with pytest.raises(SettingsError, match="the Dagster definitions"):
        load_project(load_settings(project=f"{WORKER}:DELTA"))
