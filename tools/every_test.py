"""Runs every test, room by room, and goes on where an earlier run of the same code stopped.

    python tools/every_test.py -n 2 --dist loadfile [options of pytest]

A room is a folder of `nova_assets_tests`. `build/every_test/` keeps what each room printed, and which rooms have
passed. These run again only after a change of the code. A room that fails does not stop the others.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "nova_assets_tests"
RESULTS = ROOT / "build" / "every_test"


def main(options: Sequence[str]) -> int:
    """Run the rooms that have not passed, and print a line for each."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    code = hash_of_code()
    failed = []
    for room, paths in rooms().items():
        result = RESULTS / f"{room}.json"
        if (earlier := read_result(result)).get("code") == code:
            print(f"{room}: {earlier['summary']}, before", flush=True)
            continue
        summary, has_passed = run_room(room, paths, options)
        print(f"{room}: {summary}", flush=True)
        if has_passed:
            result.write_text(json.dumps({"code": code, "summary": summary}))
        else:
            failed.append(room)
    for room in failed:
        print(f"{room} has failed: see {(RESULTS / room).relative_to(ROOT)}.log", file=sys.stderr)
    return 1 if failed else 0


def rooms() -> dict[str, list[str]]:
    """Room -> what pytest is to run. The files of the top folder are a room, too."""
    folders = sorted(f.name for f in TESTS.iterdir() if f.is_dir() and any(f.rglob("test_*.py")))
    files = sorted(str(f.relative_to(ROOT)) for f in TESTS.glob("test_*.py"))
    return {"top_level": files} | {name: [f"{TESTS.name}/{name}"] for name in folders}


def run_room(room: str, paths: Sequence[str], options: Sequence[str]) -> tuple[str, bool]:
    """Run the tests of a room. Returns the last line that pytest printed, and whether all have passed."""
    log = RESULTS / f"{room}.log"
    started = time.monotonic()
    with log.open("wb") as file:
        command = [sys.executable, "-m", "pytest", *paths, *options]
        environment = {**os.environ, "NOVA_TEST_ALL": "1"}
        code = subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    lines = log.read_text(errors="replace").splitlines()
    summary = next((line.strip("= ") for line in reversed(lines) if line.strip("= ")), "nothing printed")
    return f"{summary} ({time.monotonic() - started:.0f} s)", code.returncode in (0, 5)  # 5: no test is collected


def read_result(file: Path) -> dict[str, str]:
    """What a room that has passed left; empty if it has not."""
    try:
        result: dict[str, str] = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return result


def hash_of_code() -> str:
    """Changes with every file of the repository that git knows or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    digest = hashlib.sha256()
    for name in sorted(set(listed.stdout.decode().split("\0"))):
        file = ROOT / name
        if file.is_file():
            digest.update(name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
