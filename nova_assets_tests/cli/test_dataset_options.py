"""``nova show`` on a dataset whose file says how it is brought up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova_assets_tests.cli.conftest import Nova

PROJECT = """
import nova_assets as nova
orders = nova.Channel("orders", merge=nova.Upsert(key="id"), schema="id int, day date, amount int")
project = nova.Project(nova.datasets("sql", channels=[orders]), channels=[orders])
"""
TOTALS = """
FRESHNESS '10 minutes'
FROZEN WHERE day <
  DATE '2024-01-01'
SELECT day, SUM(amount) AS total FROM orders GROUP BY day
"""


def test_limits_are_shown(nova: Nova, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sql").mkdir()
    (tmp_path / "sql" / "totals.sql").write_text(TOTALS)
    (tmp_path / "limited_totals.py").write_text(PROJECT)
    monkeypatch.syspath_prepend(str(tmp_path))
    nova("init", "--project", "limited_totals:project")
    output = nova("show", "totals", "--project", "limited_totals:project")
    assert output.code == 0, output
    assert "10 minutes" in output.out
    assert "WHERE day < DATE '2024-01-01'" in output.out
    data = nova("show", "totals", "--project", "limited_totals:project", "--json").json
    assert (data["freshness"], data["frozen_where"]) == ("10 minutes", "WHERE day < DATE '2024-01-01'")
