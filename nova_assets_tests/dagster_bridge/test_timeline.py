"""How a channel stands, as Dagster shows it: with each materialization, and when a consumer has caught up."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import dagster as dg
import pytest

from nova_assets.dagster_bridge import timeline_metadata
from nova_assets.dagster_bridge.timeline_metadata import LAGS_CURSOR_KEY, add_lag_observations
from nova_assets.dagster_bridge.unreported_commits import collect_missing_events
from nova_assets_tests.dagster_bridge.test_dagster import World, rows

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.store.close()


def drawn(metadata: Any) -> list[str]:
    """The texts of the picture that a piece of metadata shows."""
    shown = metadata["nova/timeline"].value
    before, image = shown.removesuffix(")").split("](data:image/svg+xml;base64,")
    assert before.startswith("![")
    root = ElementTree.fromstring(base64.b64decode(image))
    return [t.text or "" for t in root.iter("{http://www.w3.org/2000/svg}text")]


def lags(metadata: Any) -> dict[str, int]:
    return {k.removeprefix("nova/lag/"): v.value for k, v in metadata.items() if k.startswith("nova/lag/")}


def materialized(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """Channel -> the metadata of its materialization."""
    events = result.get_asset_materialization_events()
    return {e.asset_key.to_user_string(): e.materialization.metadata for e in events if e.asset_key}


def tick(world: World, cursor: str | None = None) -> dg.SensorResult:
    return add_lag_observations(world.store, cursor, dg.SensorResult(cursor=json.dumps({"source": "facts"})))


def observed(result: dg.SensorResult) -> dict[str, dict[str, int]]:
    return {e.asset_key.to_user_string(): lags(e.metadata) for e in result.asset_events}


def test_a_materialization_shows_the_channel_as_the_commit_left_it(world: World) -> None:
    world.store.insert("source", rows(1, 2))
    found = materialized(world.run())
    assert drawn(found["copy"]) == ["copy: head 1", "0", "1", "deltas", "w", "at 1, lag 0"]
    assert drawn(found["seen"]) == ["seen: head 1", "0", "1", "deltas"] and lags(found["seen"]) == {}
    assert lags(found["copy"]) == {"w": 0}, "its own commit moved its cursor"
    assert found["copy"]["nova/seconds"].value >= 0


def test_an_insert_shows_who_has_not_read_it_yet(world: World) -> None:
    for n in (1, 2):
        world.store.insert("source", rows(n))
    first, second = collect_missing_events(world.store, world.instance)
    assert lags(first.metadata) == lags(second.metadata) == {"w": 2}
    assert drawn(second.metadata)[-2:] == ["w", "at 0, lag 2"]


def test_what_cannot_be_drawn_fails_no_commit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> str:
        raise RuntimeError("no ink")

    monkeypatch.setattr(timeline_metadata, "render_svg", broken)
    world.store.insert("source", rows(1))
    ended = world.run()
    assert ended.success and world.store.catalog.definitions.channel("copy").head == 1
    assert materialized(ended)["copy"]["nova/seq"].value == 1 and "nova/timeline" not in materialized(ended)["copy"]
    said = tick(world)
    assert said.asset_events == [] and json.loads(said.cursor or "")["source"] == "facts"


def test_a_commit_costs_the_catalog_one_question_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[list[str], int]] = []
    outlines = world.store.catalog.histories.outlines

    def counted(names: list[str], numbers: int) -> Any:
        asked.append((names, numbers))
        return outlines(names, numbers)

    monkeypatch.setattr(world.store.catalog.histories, "outlines", counted)
    world.store.insert("source", rows(1))
    world.run()
    assert asked == [(["copy", "seen"], 40)]


def test_a_consumer_that_catches_up_is_observed_once(world: World) -> None:
    assert observed(tick(world)) == {}, "there is nothing to be read"
    world.store.insert("source", rows(1))
    behind = tick(world)
    assert observed(behind) == {"source": {"w": 1}}
    assert observed(tick(world, behind.cursor)) == {}, "nothing has changed"
    world.run()
    caught_up = tick(world, behind.cursor)
    assert observed(caught_up) == {"source": {"w": 0}, "copy": {"w": 0}}
    [source] = [e for e in caught_up.asset_events if e.asset_key == dg.AssetKey("source")]
    assert isinstance(source, dg.AssetObservation) and drawn(source.metadata)[-2:] == ["w", "at 1, lag 0"]
    assert source.tags == {"dagster/data_version": "1"}, "an observation is no news of the data"
    assert observed(tick(world, caught_up.cursor)) == {}
    assert json.loads(caught_up.cursor or "") == {
        "source": "facts",
        LAGS_CURSOR_KEY: {"source": {"w": 0}, "copy": {"w": 0}},
    }


def test_a_sensor_that_has_forgotten_reports_again(world: World) -> None:
    world.store.insert("source", rows(1))
    assert observed(tick(world, None)) == observed(tick(world, "{}")) == {"source": {"w": 1}}


def test_what_the_tick_found_else_is_kept(world: World) -> None:
    world.store.insert("source", rows(1))
    other = dg.AssetMaterialization("elsewhere")
    asked = dg.SensorResult(run_requests=[dg.RunRequest()], asset_events=[other])
    said = add_lag_observations(world.store, None, asked)
    assert said.run_requests == [dg.RunRequest()] and said.asset_events[0] == other and len(said.asset_events) == 2
