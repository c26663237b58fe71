"""What the code compares with stored times is the catalog's clock, and nothing else."""

from __future__ import annotations

import ast
from pathlib import Path

import nova_assets

ROOT = Path(nova_assets.__file__).parent
CALLS = ("datetime.now", "datetime.utcnow", "datetime.today", "date.today")
ALLOWED = {
    "catalog/database.py": "the host's clock for tests that set it",
    "catalog/sqlite.py": "the host's clock, corrected by the file system's",
    "cli/datasets.py": "the moment for which a person asks",
    "dagster_bridge/partition_mappings.py": "which partitions Dagster is shown",
    "dagster_bridge/partitions.py": "which partitions Dagster is shown",
    "engine/storage/remote_warehouse.py": "folders of S3 have no time",
    "service/http/guard.py": "the default of a service without a catalog",
    "sql/datasets/dataset_query.py": "a task that is called outside an execution",
}


def test_the_hosts_clock_is_read_in_these_places_alone() -> None:
    places = set()
    for file in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in CALLS:
                places.add(str(file.relative_to(ROOT)))
    unexpected = {p for p in places if not p.startswith("examples/")} - set(ALLOWED)
    assert not unexpected, "compare stored times with Catalog.now()"
