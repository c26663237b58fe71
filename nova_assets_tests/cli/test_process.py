"""The command as a process: exit codes, pipes, terminals, failures that nobody foresaw."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nova_assets.model.channel import Channel
from nova_assets.store.store import Store
from nova_assets_tests.cli.conftest import Nova

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
NOVA = [sys.executable, "-m", "nova_assets.cli"]
ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": os.environ.get("HOME", "/")}


def run_on_terminal(*arguments: str, columns: int = 80) -> str:
    """What a command shows on a terminal of that width."""
    main, other = pty.openpty()
    environment = {**ENVIRONMENT, "COLUMNS": str(columns), "TERM": "xterm"}
    running = subprocess.Popen([*NOVA, *arguments], env=environment, stdin=other, stdout=other, stderr=other)
    os.close(other)
    shown = b""
    while True:
        try:
            part = os.read(main, 4096)
        except OSError:  # how Linux says that the other side is closed
            break
        if not part:
            break
        shown += part
    os.close(main)
    assert running.wait(timeout=60) == 0, shown
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode()).replace("\r\n", "\n")


def test_exit_codes(nova_process: Nova) -> None:
    assert nova_process("channels").code == 0
    assert nova_process("timeline", "nope").code == 1
    assert nova_process("timeline").code == 2


def test_json_is_alone_on_stdout_and_errors_are_json_on_stderr(nova_process: Nova, folder: Path) -> None:
    (folder / "loud.py").write_text(
        "import os, nova_assets as nova\nprint('loading')\nos.system('echo a child speaks')\nproject = nova.Project()\n"
    )
    output = nova_process("--project", "loud:project", "init", "--json")
    assert output.code == 0 and output.json["project"] == "loud:project"
    assert "loading" in output.err and "a child speaks" in output.err
    failed = nova_process("--project", "loud:project", "plan", "nope", "--json")
    assert failed.code == 1 and failed.out == "" and failed.error["code"] == "NOVA-BINDING-NOT-FOUND"


def test_a_failure_that_nobody_foresaw_is_one_line(nova_process: Nova, folder: Path) -> None:
    broken = "import nova_assets.settings as s\ndef load(**_): raise RuntimeError('the roof\\nis gone')\n"
    (folder / "sitecustomize.py").write_text(broken + "s.load_settings = load\n")
    path = f"{folder}:{ROOT}"
    output = nova_process("channels", PYTHONPATH=path)
    assert output.code == 1 and output.out == "" and len(output.err.splitlines()) == 1
    assert "RuntimeError: the roof is gone" in output.err and "NOVA_DEBUG=1 shows the traceback" in output.err
    assert nova_process("channels", "--json", PYTHONPATH=path).error["code"] == "NOVA-UNEXPECTED"
    debugged = nova_process("channels", PYTHONPATH=path, NOVA_DEBUG="1")
    assert debugged.code == 1 and "Traceback" in debugged.err


def test_a_reader_that_stops_early_is_no_failure_with_a_traceback(stub_store: Store) -> None:
    more_than_a_pipe_holds = ", ".join(f"{'long_' * 50}{n} string" for n in range(600))
    stub_store.register(Channel("wide", schema=more_than_a_pipe_holds))
    for option in ("", "--json"):
        command = f"{' '.join(NOVA)} channels {option} | head -c 20"
        done = subprocess.run(command, shell=True, env=ENVIRONMENT, capture_output=True, text=True)
        assert len(done.stdout) == 20 and done.stderr == ""


def test_a_stream_that_is_not_utf8_gets_no_crash_and_valid_json(stub_store: Store) -> None:
    stub_store.register(stub_store.project)
    stub_store.insert("orders", [{"id": 1, "item": "tea", "price": 1.0}])
    environment = {**ENVIRONMENT, "PYTHONIOENCODING": "latin-1"}
    shown = subprocess.run([*NOVA, "timeline", "orders"], env=environment, capture_output=True)
    assert shown.returncode == 0 and b"\\u0394(0\\u21921)" in shown.stdout
    found = subprocess.run([*NOVA, "timeline", "orders", "--json"], env=environment, capture_output=True)
    assert json.loads(found.stdout.decode("latin-1"))["instants"][0]["blocks"][0]["range"] == "Δ(0→1)"


SIESTA = """
import time
import nova_assets as nova

@nova.task(produces=nova.delta(nova.Channel("naps", schema="n bigint")))
def nap():
    print("asleep", flush=True)
    time.sleep(60)

project = nova.Project([nova.bind(nova.Workflowette("siesta", [nap]))])
"""


def test_an_interrupted_run_says_how_to_go_on(nova: Nova, folder: Path) -> None:
    (folder / "siesta.py").write_text(SIESTA)
    command = [*NOVA, "run", "siesta", "--project", "siesta:project"]
    running = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stdout is not None and running.stdout.readline() == "asleep\n"
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert running.returncode == 1 and out == ""
    assert "Interrupted; nothing was committed. To resume: nova run siesta --resume " in err and "Traceback" not in err
    assert nova("timeline", "naps", "--json").json["instants"] == []


@pytest.mark.parametrize("columns", [80, 50])
def test_on_a_terminal_tables_fit(stub_store: Store, columns: int) -> None:
    stub_store.register(stub_store.project)
    stub_store.insert("orders", [{"id": 1, "item": "tea", "price": 1.0}])
    for arguments in (["channels"], ["timeline", "orders"]):
        shown = run_on_terminal(*arguments, columns=columns).splitlines()
        assert max(map(len, shown)) <= columns, shown
    assert "…" in run_on_terminal("channels", columns=50)


@pytest.mark.core
def test_options_are_taken_before_and_after_the_command(nova: Nova, folder: Path) -> None:
    assert nova("--catalog", "a.db", "init").code == 0
    assert nova("init", "--catalog", "b.db").code == 0
    assert (folder / "a.db").is_file() and (folder / "b.db").is_file()
    assert nova("--catalog", "a.db", "channels", "--catalog", "b.db", "--json").json["catalog"].endswith("b.db")
