"""``nova executions`` and ``nova release``: who holds what, and how it is ended."""

from __future__ import annotations

import uuid
from pathlib import Path

import nova_assets as nova
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.model.execution import BeginRequest
from nova_assets_tests.cli.conftest import Nova


def test_an_execution_of_a_dead_container_is_listed_and_released(nova: Nova, folder: Path) -> None:
    assert nova("executions").out == "Every execution has ended.\n"
    assert nova("init").code == 0
    catalog = open_catalog(f"sqlite:///{folder}/.nova/catalog.db")
    catalog.definitions.register([_channel])
    name, owner = uuid.uuid4().hex, f"dagster:{uuid.uuid4()}"
    begun = BeginRequest(
        name,
        "asset:report",
        pinned_channels=("c",),
        cursor_channels=("c",),
        owner=owner,
        lease_seconds=1e6,
        purpose="read",
    )
    catalog.executions.begin(begun)
    output = nova("executions")
    assert (
        output.code == 0
        and name[:8] in output.out
        and "asset:report" in output.out
        and "a process of another host" in output.out
    )
    (one,) = nova("executions", "--json").json["executions"]
    assert (one["id"], one["holder"], one["owner"], one["lapsed"]) == (name, "unknown", owner, False)
    refused = nova("release", name[:8])
    assert refused.code == 1 and "[NOVA-EXECUTION-IN-PROGRESS]" in refused.err and "--force" in refused.err
    dry = nova("release", name[:8], "--force", "--dry-run")
    assert dry.out.startswith(f"It would end execution {name[:8]} of asset:report") and catalog.executions.running()
    done = nova("release", name[:8], "--force", "--json")
    assert done.json["released"] and done.json["execution"]["id"] == name and not catalog.executions.running()
    again = nova("release", name[:8])
    assert again.code == 1 and "[NOVA-EXECUTION-NOT-LIVE]" in again.err and "nova executions" in again.err
    catalog.close()


_channel = nova.Channel("c", schema="k bigint")
