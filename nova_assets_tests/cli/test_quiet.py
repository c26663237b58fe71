"""Standard error holds errors: one for each failure, as text or as JSON, whatever else wants to print there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nova_assets_tests.cli.conftest import Nova

NOISY = """
import logging, os, sys, warnings
import nova_assets as nova

print("on stdout")
print("without an end of line", end="", file=sys.stderr)
os.system("echo a child; echo its error >&2")
warnings.warn("a warning")
logging.getLogger("somebody").error("a log")
print('{"already": "json"}', file=sys.stderr)
os.write(2, b"not utf-8: \\xff\\n")
orders = nova.Channel("orders", schema="id bigint, amount double")
copies = nova.Channel("copies", schema="id bigint, amount double")


@nova.task(consumes=nova.new(orders), produces=nova.delta(copies))
def copy(orders):
    return orders.select("id", "amont")


project = nova.Project([nova.bind(nova.Workflowette("copy_all", [copy]))])
"""


@pytest.fixture
def noisy_project_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (folder / "noisy.py").write_text(NOISY)
    monkeypatch.setenv("NOVA_PROJECT", "noisy:project")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("binding", ["copy_all", "copy_none"])
def test_with_json_every_line_of_standard_error_is_an_object(
    noisy_project_folder: Path, nova_process: Nova, binding: str
) -> None:
    output = nova_process("plan", binding, "--json")
    lines = [json.loads(line) for line in output.err.splitlines()]
    logged = [line.get("log", "") for line in lines]
    for text in ("on stdout", "a child", "its error", "a log", "not utf-8: \\xff"):
        assert any(text in line for line in logged)
    assert {"already": "json"} in lines and any("without an end of line" in line for line in logged)
    if binding == "copy_all":
        assert output.code == 0 and output.json["binding"] == "copy_all"
    else:
        assert (output.code, output.out, lines[-1]["code"]) == (1, "", "NOVA-BINDING-NOT-FOUND")


@pytest.mark.parametrize(
    "arguments", [["plan"], ["plan", "a", "--colour"], ["plam"], ["run", "a", "--missing", "--whole"]]
)
def test_with_json_wrong_use_is_an_object_too(nova: Nova, arguments: list[str]) -> None:
    output = nova(*arguments, "--json")
    assert output.code == 2 and output.out == ""
    assert output.error["code"] == "NOVA-USAGE" and output.error["what"] and len(output.err.splitlines()) == 1


@pytest.mark.spark
def test_a_misspelt_column_prints_one_error(noisy_project_folder: Path, nova_process: Nova) -> None:
    plain = NOISY[NOISY.index("orders =") :]
    (noisy_project_folder / "noisy.py").write_text(f"import nova_assets as nova\n{plain}")
    rows = noisy_project_folder / "orders.csv"
    rows.write_text("id,amount\n1,2.5\n")
    assert nova_process("insert", "orders", rows).code == 0
    output = nova_process("run", "copy_all")
    assert output.code == 1 and output.err.startswith("[NOVA-TASK-FAILED] task 'copy' of binding 'copy_all' raised")
    assert output.err.count("amont") == 2, output.err  # what Spark says, and the line of the task
    assert "incubator" not in output.err and '{"ts"' not in output.err and len(output.err.splitlines()) <= 6
