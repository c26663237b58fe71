"""Definitions over HTTP: who may list, describe, pause and remove them, and what they learn of others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from nova_assets_tests.service.served_deployment import HIDDEN_WORDS, ServedDeployment, serve_deployment

pytestmark = pytest.mark.slow

MINE = {"read": ("stock", "totals"), "operate": ("stock", "totals")}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedDeployment]:
    with serve_deployment(tmp_path_factory.mktemp("definitions"), auth="tokens") as deployment:
        yield deployment


class Caller:
    """A caller with a token."""

    def __init__(self, deployment: ServedDeployment, name: str, **grants: tuple[str, ...]) -> None:
        headers = deployment.add_token_header(name, **grants)
        self.session = httpx.Client(base_url=f"{deployment.url}/v1/", headers=headers, timeout=30)

    def get(self, path: str) -> Any:
        answer = self.session.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, status: int = 200, **body: Any) -> Any:
        answer = self.session.post(path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    def status(self, path: str) -> int:
        return self.session.get(path).status_code


def test_a_binding_is_listed_described_paused_removed_and_taken_back(served: ServedDeployment) -> None:
    ann = Caller(served, "ann", **MINE)
    [binding] = ann.get("bindings")
    assert (binding["name"], binding["version"], binding["state"], binding["off"]) == ("sums", 1, "active", False)
    assert binding["cursors"] == {"stock": 4}
    assert [w["tasks"] for w in ann.get("workflowettes")] == [["add_up"]]
    [trigger] = ann.get("triggers")
    assert trigger["when"] == "on_data(stock)" and trigger["last_fired_at"] is not None
    described = ann.get("definitions/binding/sums")
    assert [v["changes"] for v in described["versions"]] == [[]] and described["executions"][0]["version"] == 1
    assert ann.get("executions")[0]["version"] == 1

    assert ann.post("definitions/trigger/sums/pause")["state"] == "paused"
    assert ann.get("triggers")[0]["off"] and ann.get("definitions/trigger/sums")["paused_by"] == "token ann"
    assert ann.post("definitions/trigger/sums/resume")["state"] == "active"

    removal = ann.post("definitions/binding/sums/remove", dry_run=True)
    assert not removal["removed"] and {o["kind"] for o in removal["orphans"]} >= {"channel", "cursor"}
    assert ann.get("bindings")[0]["state"] == "active"
    assert ann.post("definitions/binding/sums/remove")["removes"] == [{"kind": "binding", "name": "sums"}]
    assert ann.get("bindings")[0]["state"] == "removed"
    assert ann.post("definitions/binding/sums/undo-removal") == [{"kind": "binding", "name": "sums"}]
    assert served.store.plan("sums").binding == "sums"


def test_a_change_needs_the_right_to_operate_all_channels_of_the_definition(served: ServedDeployment) -> None:
    reader = Caller(served, "reader", read=("*",))
    half = Caller(served, "half", read=("*",), operate=("stock",))
    for action in ("pause", "resume", "remove", "undo-removal"):
        for caller in (reader, half):
            refused = caller.post(f"definitions/binding/sums/{action}", 403)
            assert refused["code"] == "NOVA-NOT-ALLOWED" and refused["right"] == "operate"
    assert half.post("definitions/channel/stock/remove", dry_run=True)["removes"] == [
        {"kind": "channel", "name": "stock"}
    ]
    assert served.store.catalog.definition_states.statuses() == {}


@pytest.mark.core
def test_a_caller_learns_nothing_of_definitions_on_other_channels(served: ServedDeployment) -> None:
    ann = Caller(served, "other_ann", **MINE)
    paths = ("bindings", "workflowettes", "triggers", "definitions/channel/stock", "definitions/channel/totals")
    texts = [ann.session.get(path).text for path in paths]
    texts.append(ann.session.post("definitions/channel/stock/remove", json={"dry_run": True}).text)
    for path in ("binding/numbat_nightly", "trigger/numbat_nightly", "workflowette/numbat_failing", "binding/nothing"):
        texts.append(ann.session.get(f"definitions/{path}").text.replace(path.partition("/")[2], ""))
        assert ann.status(f"definitions/{path}") == 403
    assert not [(word, text) for word in HIDDEN_WORDS for text in texts if word in text]
    removal = ann.post("definitions/channel/stock/remove", dry_run=True)
    assert {"kind": "reader", "name": "", "detail": ""} in removal["orphans"], "numbat_nightly, which it may not see"
    assert ann.get("definitions/channel/stock")["related"] == {"read by": ["sums"], "written by": []}


def test_what_is_removed_is_gone_until_that_is_taken_back(served: ServedDeployment) -> None:
    operator = Caller(served, "operator", read=("*",), write=("*",), operate=("*",))
    operator.post("definitions/channel/events/remove")
    refused = operator.post("channels/events/compact", 410)
    assert refused["code"] == "NOVA-DEFINITION-REMOVED" and "channel events was removed" in refused["detail"]
    assert "events" not in {c["name"] for c in operator.get("channels")}
    operator.post("definitions/channel/events/undo-removal")
    assert "events" in {c["name"] for c in operator.get("channels")}
    assert {operator.status(f"definitions/{path}") for path in ("lake/stock", "channel/no-name")} == {400}
