"""The sensor that delivers notifications under Dagster."""

from __future__ import annotations

import uuid
from pathlib import Path

import dagster as dg
import pytest

import nova_assets as nova
from nova_assets.dagster_bridge.definitions import build_definitions
from nova_assets.dagster_bridge.resources import NovaResource
from nova_assets.model.execution import BeginRequest
from nova_assets_tests.notify.receivers import http_receiver

pytestmark = pytest.mark.dagster

project = nova.Project(channels=[nova.Channel("orders", schema="id bigint")])


def sensor_names(root: Path) -> list[str]:
    return [s.name for s in build_definitions(project, root=root).sensors or ()]


def test_the_sensor_delivers_and_says_what_failed(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.nova]\n")
    assert "nova_notify_sensor" not in sensor_names(tmp_path)
    with http_receiver() as receiver:
        notifier = f'[tool.nova.notify.to.ops]\nkind = "webhook"\nurl = "{receiver.url}"\n'
        (tmp_path / "pyproject.toml").write_text(notifier)
        definitions = build_definitions(project, root=tmp_path)
        resource = (definitions.resources or {})["nova"]
        sensor = next(s for s in definitions.sensors or () if s.name == "nova_notify_sensor")
        assert isinstance(resource, NovaResource) and isinstance(sensor, dg.SensorDefinition)

        def tick() -> str:
            with dg.DagsterInstance.ephemeral() as instance:
                answer = sensor(dg.build_sensor_context(instance=instance))
                assert isinstance(answer, dg.SkipReason)
                return answer.skip_message or ""

        assert tick() == "0 delivered, 0 failed"
        catalog = resource.store().catalog
        execution = catalog.executions.begin(BeginRequest(uuid.uuid4().hex, "dedup", pinned_channels=()))
        catalog.executions.fail(execution.id, execution.epoch, "no")
        receiver.statuses = [503]
        assert tick().startswith("0 delivered, 1 failed\nops: the webhook ops has not accepted") and not receiver.texts
        catalog.notifications.retry()
        assert tick() == "1 delivered, 0 failed" and receiver.texts == ["dedup has failed: no"]
