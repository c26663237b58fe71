"""What is answered in front of the routes is what they would answer; and everything else is left to them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from nova_assets.file_views.query_handler import ViewQueryHandler
from nova_assets.file_views.sqlite_storage import open_storage
from nova_assets.file_views.storage import BoundedSnapshot, Storage
from nova_assets.file_views.timeline_follower import TimelineFollower
from nova_assets.model.token import mint_token
from nova_assets.service.assembly import make_app
from nova_assets.service.fast_lookups import FastFileLookups
from nova_assets.service.http.asgi import Receive, Scope, Send
from nova_assets.service.http.config import ServiceConfig
from nova_assets.service.http.guard import Caller
from nova_assets.service.service_state import ServiceState
from nova_assets.settings import VIEW_STORAGES
from nova_assets.store.store import Store
from nova_assets_tests.file_views.conftest import channel, opened, put


class LookupService:
    """A service of the channel ``t``, and how many of its answers its routes have given."""

    def __init__(self, store: Store, storage: Storage) -> None:
        self.store = store
        self.query_handler = ViewQueryHandler(TimelineFollower(store.catalog, storage))
        service = ServiceState(store, self.query_handler, ServiceConfig(), "me")
        self.caller = Caller("ann")
        self.routed_count = 0
        self.app = make_app(service)
        self.fast_lookups = FastFileLookups(self._count_and_route, service)

    async def _count_and_route(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.routed_count += 1
        await self.app(scope, receive, send)

    def get(self, path: str, routes: bool = False) -> httpx.Response:
        async def admitted(scope: Scope, receive: Receive, send: Send) -> None:
            scope["state"] = {"caller": self.caller}
            await (self.app if routes else self.fast_lookups)(scope, receive, send)

        async def once() -> httpx.Response:
            to = httpx.ASGITransport(app=admitted)  # type: ignore[arg-type]
            async with httpx.AsyncClient(transport=to, base_url="http://x") as session:
                return await session.get(path)

        return asyncio.run(once())

    def current_position(self) -> str:
        return str(self.store.catalog.timelines.head("t").position)

    def is_answered_from_memory(self, path: str) -> bool:
        """Whether it was answered without the routes; in any case as they answer."""
        before = self.routed_count
        answer = self.get(path)
        here = self.routed_count == before
        by_route = self.get(path, routes=True)
        assert (answer.status_code, answer.content) == (by_route.status_code, by_route.content)
        assert dict(answer.headers) == dict(by_route.headers)
        return here


@pytest.fixture(params=VIEW_STORAGES)
def lookup_service(request: Any, tmp_path: Path) -> Iterator[LookupService]:
    with opened(tmp_path, f"sqlite:///{tmp_path}/catalog.db") as store:
        store.register(channel())
        put(store, 1)
        made = LookupService(store, open_storage(request.param, tmp_path / "views", 2**14, "me"))
        yield made
        made.query_handler.follower.close()


FILES = "/v1/channels/t/files"


@pytest.mark.slow
def test_what_a_view_knows_is_at_hand(lookup_service: LookupService) -> None:
    path = f"{FILES}?fresh=false&partition=p%3Da&known={lookup_service.current_position()}"
    assert not lookup_service.is_answered_from_memory(path), "it is to be loaded first"
    assert (
        lookup_service.is_answered_from_memory(path)
        and lookup_service.is_answered_from_memory(f"{path}&at=1")
        and lookup_service.is_answered_from_memory(f"{path}&at=0")
    )
    put(lookup_service.store, 2)
    assert lookup_service.is_answered_from_memory(path), "who knows no more is told no more"
    later = f"{FILES}?fresh=false&partition=p%3Da&known={lookup_service.current_position()}"
    assert not lookup_service.is_answered_from_memory(later), "the view has to go on first"
    assert lookup_service.is_answered_from_memory(later) and lookup_service.get(later).json()["at"] == 2
    assert lookup_service.is_answered_from_memory(path) and len(lookup_service.get(path).json()["links"]) == 1


@pytest.mark.slow
def test_whatever_is_not_quite_that_goes_on_to_the_routes(lookup_service: LookupService) -> None:
    known = lookup_service.current_position()
    lookup_service.get(f"{FILES}?fresh=false&partition=p%3Da&known={known}")
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
        assert not lookup_service.is_answered_from_memory(path), path


@pytest.mark.slow
def test_who_may_not_read_is_refused_by_the_route(lookup_service: LookupService) -> None:
    path = f"{FILES}?fresh=false&partition=p%3Da&known={lookup_service.current_position()}"
    lookup_service.get(path)
    assert lookup_service.is_answered_from_memory(path)
    token = mint_token("ann", {"read": ("others",)}, lookup_service.store.catalog.now(), None)[1]
    lookup_service.caller = Caller("ann", token)
    assert not lookup_service.is_answered_from_memory(path) and lookup_service.get(path).status_code == 403


@pytest.mark.slow
def test_what_is_much_goes_on_to_the_routes(lookup_service: LookupService, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"{FILES}?fresh=false&partition=p%3Da&known={lookup_service.current_position()}"
    lookup_service.get(path)
    assert lookup_service.is_answered_from_memory(path)
    monkeypatch.setattr(BoundedSnapshot, "entries", 0)
    assert not lookup_service.is_answered_from_memory(path)
