"""Every block of Python in docs/ is executed, as it is printed, in an empty folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
BEFORE = {
    "concepts.md": """
import dagster as dg
import pyarrow as pa
import nova_assets as nova
store = nova.open()
store.register(nova.Channel("prices", merge=nova.Upsert(key="id"), schema="id bigint, prize int"))
store.insert("prices", [{"id": 1, "prize": 5}])
""",
    "guides/sql.md": """
import shutil
from pathlib import Path
from examples.sales import pipeline
shutil.copytree(Path(pipeline.__file__).parent / "sql", "sql")
""",
}
"""What the blocks of a page stand on, where they are parts of something."""


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def files(page: Path) -> dict[str, str]:
    """The files of SQL that a page shows: blocks whose first line is the name, such as ``-- sql/totals.sql``."""
    return dict(re.findall(r"```sql\n-- (\S+\.sql)\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL))


PAGES = sorted(p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*.md") if blocks(p))

EXPECTED = {
    "guides/arrivals.md": r"1 file, 3 rows, 1 set aside(?s:.*)1 row mended(?s:.*)version 1 4 rows 2 files sealed",
    "guides/from-dagster.md": r"""read 2\nread 1
\[\{'shop': 'Lyon', 'total': 12, 'orders': 2\}, \{'shop': 'Metz', 'total': 3, 'orders': 1\}\]
succeeded: False\nread 1\nsucceeded: True
\[\{'shop': 'Lyon', 'total': 12, 'orders': 2\}, \{'shop': 'Metz', 'total': 4, 'orders': 2\}\]""",
    "guides/from-dbt.md": r"""\('Lyon', 9\), \('Metz', 3\)\]
\[\('Lyon', 20\)\]\n\[\('Lyon', False\), .*\('Metz', True\)\]""",
    "guides/from-structured-streaming.md": r"""^streaming: .* Lyon \d\nstreaming: .* Lyon \d
ingested 3\ningested 1
\[\('01 10:00', 'Lyon', 8\), \('02 12:00', 'Lyon', 7\)\]""",
    "guides/publishing.md": r"hive:exports/actions shows 1 as edition 1\niceberg:lake.actions(?s:.*)3 rows\n3 rows",
    "guides/incremental.md": r"\[\{'name': 'Ada', 'orders': 2, 'total': 20, '_deleted': False\}\]\n.*Ada.*Bo",
    "guides/own-assets.md": r"\[\{'shop': 'Lyon', 'total': 12\}\]",
    "guides/two-projects.md": r"\['eu/largest', 'eu/orders', 'us/largest', 'us/orders'\]",
    "guides/provenance.md": r"totals 1 sum_up\norders 1 monday.csv\norders 2 tuesday.csv",
    "guides/joins.md": r"2\s+5\s+Bo|Bo",
    "guides/repair.md": r"B2 of prices: blocks/\S+ is missing(?s:.*)1 repaired, 0 still wrong",
    "guides/checks.md": r"\('no_debts', True, None\), \('many_shops', False, '1 shops'\)(?s:.*)1 row violates",
    "guides/definitions.md": r"""\[\('sell', 'paused'\)\]
binding sell: it reads orders, and cannot run any more
trigger sell: on_data\(orders\) waits for orders, and will not fire any more
\['binding sell'\]
\[\(1, \(\)\)\]""",
    "guides/cdc.md": r"Ada L\.",
    "tutorial.md": r"2024-01-01\s+Lyon\s+19\.50\s+1\s*\n\s*2024-01-02\s+Lyon\s+4\.00(?s:.*)the till is empty",
    "guides/service.md": r"1 \[\{'dt': datetime.date\(2024, 1, 2\), 'n': 2\}\]\n1 \[\('delta', 1\)\]\ncommit",
    "guides/triggers.md": r"joining: on_data\(orders, rows=100000, older_than=10m\)\nmailing: after\(joining",
    "guides/custom-merge.md": r"\[4, 5, 9\]",
}


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, spark: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in files(DOCS / page).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    names: dict[str, Any] = {"__name__": "page"}
    exec(BEFORE.get(page, ""), names)
    for code in blocks(DOCS / page):
        exec(compile(code, page, "exec"), names)
    printed = capsys.readouterr().out
    assert re.search(EXPECTED.get(page, ""), printed), printed
