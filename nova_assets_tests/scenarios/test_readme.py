"""The README's pipeline, executed as it is printed."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova

README = Path(__file__).resolve().parents[2] / "README.md"


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.spark
def test_the_pipeline_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, spark: Any) -> None:
    pipeline, use, dagster, _ = blocks()
    assert len([line for line in pipeline.splitlines() if line.strip()]) <= 12, "about ten lines"
    (tmp_path / "shops.py").write_text(pipeline + dagster)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "shops", raising=False)
    exec(use, {"nova": nova})
    printed = capsys.readouterr().out
    assert re.search(r"Lyon\s+10\.00\s+2", printed) and re.search(r"Metz\s+3\.00\s+1", printed), printed
    with nova.open("shops:project") as store:
        done = store.run("shop_totals")
        assert done.commit is not None and not done.commit.numbers, "nothing was new"
        last = store.executions("shop_totals")[1]
        assert last.pins["orders"].cursor == 1 and last.pins["orders"].head == 2, "one order, not three"


@pytest.mark.spark
def test_the_query_of_the_readme(tmp_path: Path, spark: Any) -> None:
    names: dict[str, Any] = {}
    exec(blocks()[-1], names)
    project = names["project"]
    with nova.open(project, f"sqlite:///{tmp_path}/catalog.db", tmp_path / "warehouse", spark) as store:
        store.register(project)
        store.insert("orders", [{"id": n, "shop": "Lyon", "amount": "2.50"} for n in range(3)])
        store.run("shop_totals")
        store.insert("orders", [{"id": 0, "shop": "Metz", "amount": "1.00"}])
        store.run("shop_totals")
        rows = store.read("totals").to_arrow().to_pylist()
    assert sorted((r["shop"], float(r["total"]), r["orders"]) for r in rows) == [("Lyon", 5.0, 2), ("Metz", 1.0, 1)]


def test_every_command_and_setting_of_the_reference_exists() -> None:
    from nova_assets.cli.main import COMMANDS
    from nova_assets.settings import Settings

    text = (README.parent / "docs" / "reference.md").read_text(encoding="utf-8")
    commands = set(re.findall(r"^\| `nova ([\w-]+)", text, flags=re.MULTILINE))
    assert commands == set(COMMANDS), "docs/reference.md names every command"
    settings = set(re.findall(r"^\| `(\w+)` \| `NOVA_", text, flags=re.MULTILINE))
    assert settings <= set(Settings.__dataclass_fields__)
    kinds = [e for e in vars(nova.errors).values() if isinstance(e, type) and issubclass(e, nova.NovaError)]
    assert set(re.findall(r"`(NOVA-[A-Z-]+)`", text)) == {e.code for e in kinds if e is not nova.NovaError}
