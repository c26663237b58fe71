"""A project that copies a channel, open_store on a catalog at a given URL."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from sqlalchemy.engine import make_url

import nova_assets as nova
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.settings import load_settings
from nova_assets.store.store import Store
from nova_assets_tests.stub_engine import StubEngine
from nova_assets_tests.stub_merge import Row

channel = nova.Channel("c", schema="k bigint, v bigint")


copy = nova.Channel("copy", schema="k bigint, v bigint")


@nova.task(consumes=nova.new(channel), produces=nova.delta(copy))
def mirror(c: list[Row]) -> list[Row]:
    return c


project = nova.Project([nova.bind(nova.Workflowette("mirror", [mirror]))])


def with_query(url: str, **query: str) -> str:
    return make_url(url).update_query_dict(query).render_as_string(hide_password=False)


def open_store(url: str, folder: Path, patience: float = 20.0, timeout: float = 20.0) -> Store:
    settings = load_settings(start_folder=folder, catalog=url, warehouse=str(folder / "wh"))
    catalog = open_catalog(settings.catalog, patience=patience, timeout=timeout)
    return Store(settings, project, catalog, StubEngine(folder / "wh"))


def count_keys(store: Store, name: str) -> Counter[int]:
    return Counter(r["k"] for r in store.read(name).to_spark())  # type: ignore[union-attr]


def run_in_threads(work: Callable[[int], None], count: int) -> None:
    failures: list[BaseException] = []

    def guarded(n: int) -> None:
        try:
            work(n)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(n,)) for n in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures
