"""The watchdog keeps real processes alive behind one address, whatever happens to them."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from nova_assets.service.watchdog import claim_instance_folder
from nova_assets_tests import patient
from nova_assets_tests.effort import long_except
from nova_assets_tests.service.watched_app import WatchedApp, is_running, run_watched_app, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.crash]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedApp]:
    """Shared by the tests after which the service is as before."""
    with run_watched_app(tmp_path_factory.mktemp("watched") / "log") as watched:
        yield watched


def counted_requests(watched: WatchedApp) -> int:
    """Requests to one route that the metrics of whichever instance answers tell of."""
    start = 'nova_service_requests_total{method="GET",route="/v1/whoami"'
    lines = patient.get(f"{watched.url}/metrics").text.splitlines()
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith(start))


def test_an_instance_that_is_killed_is_replaced_and_its_requests_still_count(watched: WatchedApp) -> None:
    for _ in range(20):
        assert patient.get(f"{watched.url}/v1/whoami").status_code == 200
    assert {counted_requests(watched) for _ in range(10)} == {20}
    victim = min(watched.instances)
    os.kill(victim, signal.SIGKILL)
    watched.wait_for_instances(ended=victim)
    assert {counted_requests(watched) for _ in range(10)} == {20}


def test_an_instance_that_is_stopped_is_replaced_while_the_other_answers(watched: WatchedApp) -> None:
    victim, other = sorted(watched.instances)
    os.kill(victim, signal.SIGSTOP)
    answered_by, until = set(), time.monotonic() + 30
    while is_running(victim):
        assert time.monotonic() < until, "it is not killed"
        with httpx.Client() as session:  # a connection of its own, so that either may accept it
            answered_by.add(int(session.get(f"{watched.url}/v1/pid", timeout=30).text))
        time.sleep(0.05)
    assert other in answered_by and victim not in answered_by
    watched.wait_for_instances(ended=victim)


def test_an_instance_whose_event_loop_hangs_is_replaced_and_the_log_shows_where(watched: WatchedApp) -> None:
    before = watched.instances
    with pytest.raises(httpx.TransportError):
        patient.get(f"{watched.url}/v1/hang")
    wait_until(lambda: bool(before - watched.instances), "no instance has ended")
    (victim,) = before - watched.instances
    watched.wait_for_instances(ended=victim)
    log = watched.log.read_text()
    assert "small_app.py" in log and "in hang" in log
    messages = [json.loads(line)["message"] for line in log.splitlines() if line.startswith("{")]
    assert f"WORKER TIMEOUT (pid:{victim})" in messages


def test_an_instance_that_cannot_start_is_tried_again_while_the_other_answers(watched: WatchedApp) -> None:
    watched.fault.touch()
    try:
        victim, other = sorted(watched.instances)
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: "the catalog does not answer" in watched.log.read_text(), "it starts all the same")
        assert watched.serving_instance() == other
    finally:
        watched.fault.unlink()
    watched.wait_for_instances(ended=victim)
    wait_until(lambda: watched.serving_instance() not in (None, other), "it is not tried again")


def test_an_instance_that_is_told_to_end_first_answers_and_is_replaced(watched: WatchedApp) -> None:
    """Longer than it may give no sign of life: it gives signs while it waits."""
    with ThreadPoolExecutor(1) as pool, httpx.Client(base_url=watched.url, timeout=30) as session:
        victim = int(session.get("/v1/pid").text)
        answer = pool.submit(session.get, "/v1/slow?seconds=5")
        time.sleep(0.5)
        os.kill(victim, signal.SIGTERM)
        assert answer.result().json() == {"slept": 5.0}
    watched.wait_for_instances(ended=victim)


@pytest.mark.core
def test_all_instances_are_replaced_on_sighup_and_no_request_fails(watched: WatchedApp) -> None:
    before, replaced = watched.instances, threading.Event()

    def ask_until_replaced() -> int:
        asked = 0
        while not replaced.is_set():
            assert patient.get(f"{watched.url}/v1/slow?seconds=0.2").status_code == 200
            asked += 1
        return asked

    with ThreadPoolExecutor(3) as pool:
        counts = [pool.submit(ask_until_replaced) for _ in range(3)]
        try:
            watched.process.send_signal(signal.SIGHUP)
            wait_until(lambda: len(watched.instances) == len(before) and not watched.instances & before, "not replaced")
        finally:
            replaced.set()
        assert all(count.result() > 0 for count in counts)
    watched.wait_for_instances()


@pytest.mark.parametrize("how", long_except([signal.SIGTERM, signal.SIGINT], signal.SIGTERM))
def test_at_the_end_requests_in_progress_are_answered(tmp_path: Path, how: int) -> None:
    with run_watched_app(tmp_path / "log") as watched, ThreadPoolExecutor(4) as pool:
        instances = watched.instances
        answers = [pool.submit(patient.get, f"{watched.url}/v1/slow?seconds=4") for _ in range(4)]
        in_flight = "nova_service_requests_in_flight 5.0"  # these, and the one that asks
        wait_until(lambda: in_flight in patient.get(f"{watched.url}/metrics").text, "not all have begun")
        assert watched.end(how) == 0
        assert [a.result().json() for a in answers] == [{"slept": 4.0}] * 4
        assert not any(map(is_running, instances))
        with pytest.raises(httpx.ConnectError):
            patient.get(f"{watched.url}/v1/pid")
        assert "Traceback" not in watched.log.read_text()


@pytest.mark.core
def test_instances_end_when_their_watchdog_is_killed(tmp_path: Path) -> None:
    with run_watched_app(tmp_path / "log") as watched:
        instances = watched.instances
        assert watched.end(signal.SIGKILL) == -signal.SIGKILL
        try:
            wait_until(lambda: not any(map(is_running, instances)), "instances outlive their watchdog")
        finally:
            for instance in filter(is_running, instances):
                os.kill(instance, signal.SIGKILL)


@pytest.mark.core
def test_each_instance_has_a_folder_of_its_own(tmp_path: Path) -> None:
    claimed = [claim_instance_folder(tmp_path, 2).name for _ in range(4)]
    assert claimed == ["instance-1", "instance-2", "instance-3", "instance-4"]
