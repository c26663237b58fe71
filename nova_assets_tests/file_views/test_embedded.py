"""A service within the process that writes, asked by another process as Spark's workers ask; and settings of views."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import nova_assets as nova
from nova_assets.settings import VIEW_STORAGES, load_settings
from nova_assets_tests.conftest import ROOT
from nova_assets_tests.file_views.conftest import channel, put

_WORKER = """
import json, pickle, sys
views = pickle.loads(sys.stdin.buffer.read())
print(json.dumps([[f.path for f in views.files("t", "p=b")], views.counts.as_json()]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("service", ["embedded", None])
def test_another_process_asks_the_service_within_the_writer(
    service: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the setting there is no service, and the other process makes a view of its own."""
    monkeypatch.chdir(tmp_path)
    with nova.open(nova.Project(channels=[channel()]), service=service, spark=None) as store:
        put(store, 0)
        put(store, 1)
        sent = pickle.dumps(store.views("t"))
        put(store, 2)
        done = subprocess.run([sys.executable, "-c", _WORKER], input=sent, capture_output=True, cwd=ROOT)
        assert done.returncode == 0, done.stderr.decode()[-2000:]
        files, counts = json.loads(done.stdout)
        pinned = [f for b in store.catalog.histories.of("t", 2, "p=b").blocks for f in b.manifest.files]
        assert files == [str(tmp_path / ".nova" / "warehouse" / f.path) for f in pinned] and len(files) == 2
    if service is None:
        assert counts == {"served": 0, "fell_back": {"no service": 1}}
    else:
        assert counts == {"served": 1, "fell_back": {}}


@pytest.mark.parametrize("storage", VIEW_STORAGES)
def test_a_setting_names_the_storage(storage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOVA_VIEWS", raising=False)
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.nova]\nviews = "{storage}"\nviews_folder = "v"\nviews_memory = 7\n'
    )
    found = load_settings(start_folder=tmp_path)
    assert (found.views, found.views_folder, found.views_memory) == (storage, str(tmp_path / "v"), 7.0)
    monkeypatch.setenv("NOVA_VIEWS", "tape")
    with pytest.raises(nova.SettingsError, match="views"):
        load_settings(start_folder=tmp_path)
