"""What is answered in front of the routes is what they would answer; and everything else is left to them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from nova_assets.file_views.query_handler import ViewQueryHandler
from nova_assets.file_views.sqlite_storage import SqliteStorage
from nova_assets.file_views.storage import BoundedSnapshot, MemoryStorage, Storage
from nova_assets.file_views.timeline_follower import TimelineFollower
from nova_assets.model.token import mint_token
from nova_assets.service.app import make_app
from nova_assets.service.fast_lookups import FastFileLookups
from nova_assets.service.http.asgi import Receive, Scope, Send
from nova_assets.service.http.caller import Caller
from nova_assets.service.http.config import ServiceConfig
from nova_assets.service.service_state import ServiceState
from nova_assets.store.store import Store
from nova_assets_tests.file_views.conftest import channel, opened, put


class Asked:
    """A service of the channel ``t``, and how many of its answers its routes have given."""

    def __init__(self, store: Store, storage: Storage) -> None:
        self.store = store
        self.desk = ViewQueryHandler(TimelineFollower(store.catalog, storage))
        service = ServiceState(store, self.desk, ServiceConfig(), "me")
        self.caller = Caller("ann")
        self.routed = 0
        self.app = make_app(service)
        self.in_front = FastFileLookups(self._counted, service)

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.routed += 1
        await self.app(scope, receive, send)

    def get(self, path: str, routes: bool = False) -> httpx.Response:
        async def admitted(scope: Scope, receive: Receive, send: Send) -> None:
            scope["state"] = {"caller": self.caller}
            await (self.app if routes else self.in_front)(scope, receive, send)

        async def once() -> httpx.Response:
            to = httpx.ASGITransport(app=admitted)  # type: ignore[arg-type]
            async with httpx.AsyncClient(transport=to, base_url="http://x") as session:
                return await session.get(path)

        return asyncio.run(once())

    def known(self) -> str:
        return str(self.store.catalog.channel_head("t").position)

    def is_at_hand(self, path: str) -> bool:
        """Whether it was answered without the routes; in any case as they answer."""
        before = self.routed
        answer = self.get(path)
        here = self.routed == before
        by_route = self.get(path, routes=True)
        assert (answer.status_code, answer.content) == (by_route.status_code, by_route.content)
        assert dict(answer.headers) == dict(by_route.headers)
        return here


@pytest.fixture(params=["disk", "memory"])
def asked(request: Any, tmp_path: Path) -> Iterator[Asked]:
    with opened(tmp_path, f"sqlite:///{tmp_path}/catalog.db") as store:
        store.register(channel())
        put(store, 1)
        made = Asked(store, SqliteStorage(tmp_path / "views", "me") if request.param == "disk" else MemoryStorage())
        yield made
        made.desk.follower.close()


FILES = "/v1/channels/t/files"


def test_what_a_view_knows_is_at_hand(asked: Asked) -> None:
    path = f"{FILES}?fresh=false&partition=p%3Da&known={asked.known()}"
    assert not asked.is_at_hand(path), "it is to be loaded first"
    assert asked.is_at_hand(path) and asked.is_at_hand(f"{path}&at=1") and asked.is_at_hand(f"{path}&at=0")
    put(asked.store, 2)
    assert asked.is_at_hand(path), "who knows no more is told no more"
    later = f"{FILES}?fresh=false&partition=p%3Da&known={asked.known()}"
    assert not asked.is_at_hand(later), "the view has to go on first"
    assert asked.is_at_hand(later) and asked.get(later).json()["at"] == 2
    assert asked.is_at_hand(path) and len(asked.get(path).json()["links"]) == 1


def test_whatever_is_not_quite_that_goes_on_to_the_routes(asked: Asked) -> None:
    known = asked.known()
    asked.get(f"{FILES}?fresh=false&partition=p%3Da&known={known}")
    for path in (
        f"{FILES}?fresh=false&partition=p%3Da",
        f"{FILES}?fresh=false&partition=p%3Db&known={known}",
        f"{FILES}?fresh=false&partition=p%3Da&known=7-",
        f"{FILES}?fresh=false&partition=p%3Da&known={known}&known={known}",
        f"{FILES}?fresh=false&partition=p%3Da&known={known}&more=1",
        f"{FILES}?fresh=false&partition=p%3Da&known={known}&at=9",
        f"{FILES}?fresh=false&partition=p%3Da&known={known}&at=-1",
        f"{FILES}?fresh=false&partition=q%3Da&known={known}",
        f"/v1/channels/u/files?known={known}",
        f"/v1/channels/t/instants?known={known}",
    ):
        assert not asked.is_at_hand(path), path


def test_who_may_not_read_is_refused_by_the_route(asked: Asked) -> None:
    path = f"{FILES}?fresh=false&partition=p%3Da&known={asked.known()}"
    asked.get(path)
    assert asked.is_at_hand(path)
    token = mint_token("ann", {"read": ("others",)}, asked.store.catalog.now(), None)[1]
    asked.caller = Caller("ann", token)
    assert not asked.is_at_hand(path) and asked.get(path).status_code == 403


def test_what_is_much_goes_on_to_the_routes(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"{FILES}?fresh=false&partition=p%3Da&known={asked.known()}"
    asked.get(path)
    assert asked.is_at_hand(path)
    monkeypatch.setattr(BoundedSnapshot, "entries", 0)
    assert not asked.is_at_hand(path)
