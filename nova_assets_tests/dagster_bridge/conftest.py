"""Deployments: with the daemon's own iterations and a clock of the test's, or with plain assets as the only writers."""

from __future__ import annotations

import runpy
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.dagster_bridge import resources
from nova_assets_tests.dagster_bridge.asset_deployment import LATEST, LISTED, ORDERS, Deploy, Deployment
from nova_assets_tests.dagster_bridge.consumer_world import world as world
from nova_assets_tests.dagster_bridge.daemon import Daemon
from nova_assets_tests.dagster_bridge.deployed import DEFINITIONS, MakeDaemon, opened


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeDaemon]:
    made = Daemon(tmp_path, datetime.now(UTC).replace(microsecond=0))  # Dagster's own events carry the real time
    monkeypatch.setattr(resources, "open_store", made.opener)

    def with_trigger(when: str) -> Daemon:
        text = DEFINITIONS.replace("{when}", when)
        text = text.replace("{catalog!r}", repr(made.catalog)).replace("{warehouse!r}", repr(made.warehouse))
        made.file.write_text(text)
        with opened(made) as store:
            store.register(runpy.run_path(str(made.file))["project"])
        made.iterate()
        return made

    with made.held:
        yield with_trigger


@pytest.fixture
def deploy(tmp_path: Path) -> Iterator[Deploy]:
    made: list[Deployment] = []

    def build(
        *assets: Any,
        channels: Sequence[nova.Channel] = (ORDERS, LISTED, LATEST),
        checks: Sequence[nova.Check] = (),
    ) -> Deployment:
        made.append(Deployment(tmp_path, assets, channels, checks))
        return made[-1]

    yield build
    for deployment in made:
        deployment.close()
