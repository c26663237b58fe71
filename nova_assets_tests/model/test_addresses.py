"""Addresses of warehouses: one parser, and whatever is not understood is refused before anything is opened."""

from __future__ import annotations

from pathlib import Path

import pytest

import nova_assets as nova
from nova_assets.engine.storage import file_io
from nova_assets.model.address import parse_address


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("s3://lake", "s3://lake"),
        ("s3://lake/", "s3://lake"),
        ("s3://lake/wh/sub/", "s3://lake/wh/sub"),
        ("S3://lake/dt=2024-01-01/ü b", "s3://lake/dt=2024-01-01/ü b"),
        ("hdfs://namenode:8020/nova/", "hdfs://namenode:8020/nova"),
        ("file:///data/w%20h", "/data/w h"),
        ("/data/a#b?c%20d", "/data/a#b?c%20d"),
    ],
)
def test_what_is_understood(text: str, meant: str) -> None:
    assert str(parse_address(text)) == meant
    assert str(parse_address(meant)) == meant


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("s3://lake/sp1#x", "a fragment"),
        ("s3://lake/sp1?x=1", "a query"),
        ("s3://lake#x/wh", "a fragment"),
        ("hdfs://n:8020/a?b", "a query"),
        ("file:///a#b", "a fragment"),
        ("s3://lake/a\nb", "control character"),
        ("/data/a\x00b", "control character"),
        ("s3://lake//wh", "read differently"),
        ("s3://lake/a/../b", "read differently"),
        ("s3://lake/a%20b", "read differently"),
        ("s3://lake/a\\b", "read differently"),
        ("s3://lake/a*", "read differently"),
        ("s3://", "names no bucket"),
        ("s3:///wh", "names no bucket"),
        ("s3://lake:9000/wh", "names no bucket"),
        ("s3:/lake/wh", "lacks the slashes"),
        ("s3:lake", "lacks the slashes"),
        ("hdfs://namenode:8020", "names no folder"),
        ("file://server/share", "names no path"),
    ],
)
def test_what_is_not_understood_is_refused_and_nothing_is_made(text: str, why: str, tmp_path: Path) -> None:
    catalog = tmp_path / "c.db"
    with pytest.raises(nova.SettingsError, match=why):
        nova.open(catalog=f"sqlite:///{catalog}", warehouse=text)
    assert not catalog.exists()


def test_credentials_in_an_address_are_refused_and_not_shown(tmp_path: Path) -> None:
    with pytest.raises(nova.SettingsError, match="a user or a password") as caught:
        nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse="s3://AKIA:geheim@lake/wh")
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("text", ["gs://lake/wh", "s3a://lake/wh", "abfss://account/wh"])
def test_other_kinds_are_named(text: str, tmp_path: Path) -> None:
    with pytest.raises(nova.NotSupported, match="not supported"):
        nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=text)


def test_names_of_files_are_taken_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    assert file_io.filesystem_and_path("s3://lake/a#b?c=%20d")[1] == "lake/a#b?c=%20d"
