"""Functions of a user's file reach Spark's workers, however the file was loaded."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import nova_assets as nova

pytestmark = pytest.mark.spark

PIPELINE = """
import pyarrow as pa
import nova_assets as nova

words = nova.Channel("words", schema="word string")
lengths = nova.Channel("lengths")

def measured(word):
    return len(word)

def measure(batches):
    for batch in batches:
        yield batch.append_column("n", pa.array([measured(w.as_py()) for w in batch["word"]]))

@nova.task(consumes=nova.new(words), produces=nova.delta(lengths))
def lengths_of(words):
    return words.mapInArrow(measure, "word string, n long")

binding = nova.bind(nova.Workflowette("measure", [lengths_of]))
"""


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[ModuleType]:
    """A file that was loaded as Dagster loads one: known to this process under a name that no path leads to."""
    name = "pipeline_on_no_path"
    (tmp_path / f"{name}.py").write_text(PIPELINE)
    spec = importlib.util.spec_from_file_location(name, tmp_path / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[name]


def test_a_function_of_a_file_that_is_on_no_path_runs_in_the_workers(loaded: Any, tmp_path: Path, spark: Any) -> None:
    project = nova.Project([loaded.binding])
    with nova.open(project, f"sqlite:///{tmp_path}/c.db", tmp_path / "wh", spark=spark) as store:
        store.insert("words", [{"word": "a"}, {"word": "four"}])
        store.run("measure")
        rows = store.read("lengths").to_arrow().sort_by("n").to_pylist()
        assert rows == [{"word": "a", "n": 1}, {"word": "four", "n": 4}]
