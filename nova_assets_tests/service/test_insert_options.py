"""Merge model and file format of a block that is inserted over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import nova_assets as nova
from nova_assets.service import assembly
from nova_assets.service.http.asgi import LINES
from nova_assets.service.http.config import ServiceConfig
from nova_assets.settings import load_settings
from nova_assets_tests import patient

pytestmark = pytest.mark.slow

SUMS = nova.Channel("sums", merge=nova.Keyed(key="k", combine={"v": "sum"}), schema="k bigint, v bigint")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[nova.Store]:
    settings = replace(load_settings(start_folder=tmp_path), service="embedded")
    with nova.open(nova.Project(channels=[SUMS]), settings=settings) as store:
        store.register(store.project)
        yield store


@pytest.fixture
def url(store: nova.Store) -> Iterator[str]:
    config = ServiceConfig(port=0, max_body=4 * 2**20)
    with assembly.build_server(assembly.build_service(store, config)).in_background() as url:
        yield url


@pytest.fixture
def connection(url: str) -> Iterator[nova.Connection]:
    with nova.connect(url) as connection:
        yield connection


def test_a_block_has_a_merge_model_and_a_format_of_its_own(connection: nova.Connection, store: nova.Store) -> None:
    connection.insert("sums", [{"k": 1, "v": 10}, {"k": 2, "v": 5}])
    connection.insert("sums", [{"k": 1, "v": 7}], merge=nova.Upsert(key="k"), format="orc")
    connection.insert("sums", [{"k": 1, "v": 1}], format="csv")
    assert connection.read("sums").to_arrow().sort_by("k").to_pylist() == [{"k": 1, "v": 8}, {"k": 2, "v": 5}]
    blocks = store.catalog.histories.of("sums").blocks
    assert [b.manifest.format for b in blocks] == ["parquet", "orc", "csv"]
    assert [b.has_own_merge for b in blocks] == [False, True, False]
    with pytest.raises(nova.DefinitionError, match="cannot be combined"):
        connection.insert("sums", [{"k": 1, "v": 1}], merge=nova.Upsert(key="v"))
    with pytest.raises(nova.DefinitionError, match="cannot be sent"):
        connection.insert("sums", [{"k": 1, "v": 1}], merge=nova.Keyed(key="k", combine={"v": "max"}))
    with pytest.raises(nova.DefinitionError, match="belongs to a delta"):
        connection.check_insert("sums", [{"k": 1, "v": 1}], "base", merge=nova.Upsert(key="k"))
    assert store.catalog.definitions.channel("sums").head == 3


def test_the_address_of_an_insert_names_merge_model_and_format(url: str, store: nova.Store) -> None:
    address, lines = f"{url}/v1/channels/sums/blocks", {"content-type": LINES}
    good = patient.post(f"{address}?merge=upsert&format=avro", content=b'{"k": 1, "v": 1}', headers=lines)
    assert good.status_code == 200, good.text
    assert [b.manifest.format for b in store.catalog.histories.of("sums").blocks] == ["avro"]
    for parameters in (
        "merge=keyed",
        "merge=append&merge_key=k",
        "merge_key=k",
        "format=xlsx",
        "merge=upsert&merge_key=nope",
    ):
        answer = patient.post(f"{address}?{parameters}", content=b'{"k": 1, "v": 1}', headers=lines)
        assert answer.status_code in (400, 422), (parameters, answer.text)
    assert store.catalog.definitions.channel("sums").head == 1
