"""What a person does in Dagster's pages, in a real browser: materialize, look, see a check fail, backfill, cancel.

Screenshots of every station are kept in ``build/screenshots``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import nova_assets as nova
from nova_assets_tests.dagster_dev import dagster_dev, waited_for
from nova_assets_tests.scenarios import ui_shop
from nova_assets_tests.scenarios.ui import MARKS, Deployment, Person

pytestmark = MARKS


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    place = tmp_path_factory.mktemp("ui")
    catalog, warehouse = f"sqlite:///{place}/c.db", str(place / "wh")
    environment = {"NOVA_CATALOG": catalog, "NOVA_WAREHOUSE": warehouse}
    with nova.open(ui_shop.project, catalog, warehouse) as store:
        store.register(ui_shop.project)
        amounts = {1: 9.5, 2: -3.0, 3: 4.0, 4: 1.0}
        store.insert("orders", [{"day": f"2024-01-0{d}", "id": d, "amount": a} for d, a in amounts.items()])
        with dagster_dev(place / "home", ["-f", str(Path(ui_shop.__file__))], environment=environment) as url:
            yield Deployment(store, url)


def test_one_partition_is_materialized_and_everything_about_it_is_seen(deployed: Deployment, person: Person) -> None:
    before = deployed.runs()
    person.materializes("totals", "2024-01-01")
    run = deployed.new_run(before, "SUCCESS")
    assert [(b.range, b.partition) for b in deployed.store.timeline("totals")[-1].blocks] == [
        ("Δ(0→1)", "day=2024-01-01")
    ]

    person.go(f"runs/{run}")
    person.sees("sum_up", "commit", "checks")
    person.photographs("run-steps")

    person.go("assets/totals?view=partitions&partition=2024-01-01")
    person.sees("nova/seq", "nova/range", "Δ(0→1)", "nova/consumed", "nova/bytes")
    person.photographs("block-metadata")

    person.page.locator("tr", has_text="nova/timeline").get_by_text("Show Markdown").click()
    picture = person.page.get_by_role("dialog").locator("img")
    picture.wait_for()
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") == 760
    person.photographs("timeline")

    person.go("assets/totals?view=overview")
    person.sees("Columns", "double", "Freshness policy")
    person.photographs("asset-overview")


@pytest.mark.exhaustive
def test_a_channel_is_materialized_again_and_again_and_its_numbers_plot_themselves(
    deployed: Deployment, person: Person
) -> None:
    for n in (1, 2):
        before = deployed.runs()
        person.materializes("report")
        deployed.new_run(before, "SUCCESS")
        assert deployed.store.catalog.definitions.channel("report").head == n
    person.go("assets/report?view=overview")
    person.page.get_by_role("button", name="Plots").click()
    person.sees("nova/seconds", "nova/seq", "dagster/row_count")
    person.page.get_by_text("nova/seconds").first.scroll_into_view_if_needed()
    person.photographs("plots")


def test_a_compound_trigger_shows_the_assets_that_it_watches(deployed: Deployment, person: Person) -> None:
    person.go("automation")
    person.sees("weekly_letter_sensor", "Multi-asset sensor", "nova_publish")
    person.photographs("automation")
    person.page.get_by_text("weekly_letter_sensor").first.click()
    person.sees("on_data(orders) & on_data(returns). Watches orders and returns.", "0 runs requested")
    person.photographs("automation-sensor")


def test_lineage_is_seen(deployed: Deployment, person: Person) -> None:
    person.go("assets/totals?view=lineage")
    person.sees("orders", "totals", "report")
    person.photographs("lineage")


@pytest.mark.exhaustive
def test_a_failed_check_is_seen_and_nothing_was_published(deployed: Deployment, person: Person) -> None:
    before, head = deployed.runs(), deployed.store.catalog.definitions.channel("totals").head
    person.materializes("totals", "2024-01-02")
    run = deployed.new_run(before, "FAILURE")
    assert deployed.store.catalog.definitions.channel("totals").head == head

    person.go(f"runs/{run}")
    person.sees("NOVA-CHECK-FAILED")
    person.photographs("run-with-failed-check")
    person.go("assets/totals?view=checks")
    person.sees("no_debts", "Failed", "1 row violates the check", "No day's total is below zero.")
    person.photographs("failed-check")


@pytest.mark.exhaustive
def test_a_range_is_backfilled(deployed: Deployment, person: Person) -> None:
    person.materializes("totals", "[2024-01-03...2024-01-04]")

    def done() -> bool:
        held = {p.partition for p in deployed.store.partitions("totals")}
        return {"day=2024-01-03", "day=2024-01-04"} <= held

    waited_for(done, "both days")
    person.go("runs?view=backfills")
    person.photographs("backfill")


@pytest.mark.exhaustive
def test_a_run_is_cancelled_and_leaves_nothing(deployed: Deployment, person: Person) -> None:
    before = deployed.runs()
    person.materializes("slow")
    run = deployed.new_run(before, "STARTED")
    person.go(f"runs/{run}")
    person.sees("Spark tasks done")
    person.photographs("run-progress")
    person.page.get_by_role("button", name="Terminate").click()
    person.page.get_by_role("dialog").get_by_role("button", name=re.compile("Terminate")).click()
    waited_for(lambda: deployed.runs()[run] == "CANCELED", "a run that is cancelled")
    [latest] = deployed.store.executions("long_work", 1)
    assert latest.state == "failed" and deployed.store.catalog.definitions.channel("slow").head == 0
    person.go(f"runs/{run}")
    person.sees("Canceled")
    person.photographs("run-cancelled")
