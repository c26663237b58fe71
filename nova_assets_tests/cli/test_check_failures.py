"""``nova check-failures``: the rows that violate checks, from a failed execution and from the channel."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova_assets_tests.cli.conftest import Nova, write_json_lines

pytestmark = pytest.mark.spark

PROJECT = """
import nova_assets as nova

orders = nova.Channel("orders", schema="id bigint, amount double")
paid = nova.Channel("paid", merge=nova.Upsert(key="id"), schema="id bigint, amount double")

@nova.task(consumes=nova.new(orders), produces=nova.delta(paid))
def pay(orders):
    return orders

checks = [nova.checks.expression(paid, "amount >= 0", name="no_debts"), nova.checks.row_count_between(paid, 1)]
project = nova.Project([nova.bind(nova.Workflowette("pay", [pay], checks=checks))])
"""


@pytest.mark.core
def test_rows_of_a_failed_execution_and_of_the_channel(
    nova: Nova, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "failing_orders.py").write_text(PROJECT)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("NOVA_PROJECT", "failing_orders:project")
    nova("insert", "orders", write_json_lines(folder / "1.jsonl", {"id": 1, "amount": 2.0}))
    assert nova("run", "pay").code == 0
    said = nova("check-failures", "paid")
    assert "no_debts, rows of paid now: no row violates it" in said.out, said.err
    assert "row_count, rows of paid now: it returns no rows, but whether they are right" in said.out

    rows = [{"id": n, "amount": -float(n)} for n in range(2, 5)]
    nova("insert", "orders", write_json_lines(folder / "2.jsonl", *rows))
    failed = nova("run", "pay")
    assert failed.code == 1 and "3 rows violate the check" in failed.err
    assert "nova check-failures paid" in failed.err
    [found] = nova("check-failures", "paid", "--check", "no_debts", "--limit", 2, "--json").json["checks"]
    assert found["execution"] and found["has_more"] and len(found["rows"]) == 2
    assert all(r["amount"] < 0 for r in found["rows"])
    shown = nova("check-failures", "paid", "--check", "no_debts").out
    assert f"no_debts, output of execution {found['execution'][:8]}:" in shown and "-4.0" in shown

    wrong = nova("check-failures", "paid", "--check", "no_debt")
    assert wrong.code == 1 and "did you mean 'no_debts'?" in wrong.err
    assert nova("check-failures", "orders").out.strip() == "No check is about orders."
