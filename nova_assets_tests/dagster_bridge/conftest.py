"""Deployments: with the daemon's own iterations and a clock of the test's, or with plain assets as the only writers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets_tests.dagster_bridge.asset_deployment import LATEST, LISTED, ORDERS, Deploy, Deployment
from nova_assets_tests.dagster_bridge.consumer_world import world as world
from nova_assets_tests.dagster_bridge.daemon import Daemon
from nova_assets_tests.dagster_bridge.deployed import DEFINITIONS, MakeDaemon, write_definitions


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeDaemon]:
    made = Daemon(tmp_path, datetime.now(UTC).replace(microsecond=0))  # Dagster's own events carry the real time

    def with_trigger(when: str) -> Daemon:
        write_definitions(made, DEFINITIONS, monkeypatch, when=when)
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
