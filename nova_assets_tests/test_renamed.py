"""Public names that have changed: the old name answers with an error that gives the new one, and nothing happens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import nova_assets as nova
from nova_assets.cli.main import cli
from nova_assets.settings import load_settings


@pytest.mark.parametrize(
    ("call", "new_name"),
    [
        (lambda: nova.Channel("c", compacting=None), "compaction"),  # type: ignore[call-overload]
        (lambda: nova.files("landing", most_bad=3), "max_bad"),  # type: ignore[call-arg]
        (lambda: nova.files("landing", largest=3), "max_bytes"),  # type: ignore[call-arg]
        (lambda: nova.files("landing", settled="1s"), "min_age"),  # type: ignore[call-arg]
        (lambda: nova.files("landing", replaced="take"), "on_replaced"),  # type: ignore[call-arg]
        (lambda: nova.files("landing", extra="drop"), "on_extra_columns"),  # type: ignore[call-arg]
        (lambda: nova.external("/data", done="_SUCCESS"), "success_file"),  # type: ignore[call-arg]
        (lambda: nova.Compacting, "Compaction"),
    ],
)
def test_an_old_name_gives_the_new_one(call: Callable[[], object], new_name: str) -> None:
    with pytest.raises(nova.Renamed) as refused:
        call()
    assert refused.value.new_name == new_name and new_name in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new"), [("collect", "collect_garbage"), ("editions", "published"), ("withdraw", "unpublish")]
)
def test_methods_of_a_store(tmp_path: Path, old: str, new: str) -> None:
    with nova.open(settings=load_settings(tmp_path)) as store:
        with pytest.raises(nova.Renamed, match=new):
            getattr(store, old)
        with pytest.raises(AttributeError, match="nothing_of_the_kind"):
            getattr(store, "nothing_of_the_" + "kind")
        assert not hasattr(store, old), "it is an AttributeError, too"


@pytest.mark.parametrize(("old", "new"), [("collect", "gc"), ("editions", "published"), ("withdraw", "unpublish")])
def test_commands(old: str, new: str) -> None:
    result = CliRunner().invoke(cli, [old, "orders"])
    assert result.exit_code == 2 and f"nova {new}" in result.output


def test_a_limit_that_a_reverse_proxy_has_taken_over() -> None:
    result = CliRunner().invoke(cli, ["serve", "--max-connections-per-address", "5", "--port", "none"])
    assert result.exit_code == 2 and "reverse proxy" in result.output and "docs/guides/service.md" in result.output


@pytest.mark.parametrize(("old", "new", "value"), [("collect_grace", "gc_grace", "5"), ("way", "strategy", "cells")])
def test_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, value: str) -> None:
    with pytest.raises(nova.SettingsError, match=new):
        load_settings(tmp_path, **{old: value})
    monkeypatch.setenv(f"NOVA_{old.upper()}", value)
    with pytest.raises(nova.SettingsError, match=f"NOVA_{new.upper()}"):
        load_settings(tmp_path)
    monkeypatch.delenv(f"NOVA_{old.upper()}")
    (tmp_path / "pyproject.toml").write_text(f'[tool.nova]\n{old} = "{value}"\n')
    with pytest.raises(nova.SettingsError, match=new):
        load_settings(tmp_path)


@pytest.mark.parametrize("old", ["rocksdb", "spillable"])
def test_storages_of_views(tmp_path: Path, old: str) -> None:
    with pytest.raises(nova.SettingsError, match="'disk'"):
        load_settings(tmp_path, views=old)
    result = CliRunner().invoke(cli, ["serve", "--views", old])
    assert result.exit_code == 2 and "is now called 'disk'" in result.output


def test_the_old_path_of_a_service_inside_a_process_still_works() -> None:
    from nova_assets.service.assembly import serve_in_background
    from nova_assets.service.serving import beside

    assert beside is serve_in_background
