"""Asks whether known vulnerabilities concern what the project depends upon, as it is installed (part of `make check`).

pip-audit asks, of PyPI or else of OSV. Where neither can be reached, that is said, and nothing fails; with
NOVA_AUDIT=required, as continuous integration wants it, that fails as well. Advisories in tools/audit_ignored.txt are
passed over; each says there why.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
IGNORED = Path(__file__).with_name("audit_ignored.txt")
SERVICES = ("pypi", "osv")

Pins = dict[str, str]
"""Name -> version."""

Answer = list[dict[str, Any]]
"""What pip-audit says of each dependency."""


def main() -> int:
    pins = installed(wanted(ROOT / "pyproject.toml"))
    try:
        ignored = reasons(IGNORED.read_text())
    except ValueError as error:
        return _say(str(error), 1)
    found, unseen = asked(pins, ask)
    wrong = [v for v in found if not ignored.keys() & {v["id"], *v["aliases"]}]
    for v in wrong:
        fixed = f"mended in {', '.join(v['fix_versions'])}" if v["fix_versions"] else "not mended yet"
        _say(f"{v['name']} {v['version']}: {v['id']}, {fixed}")
    idle = ignored.keys() - {i for v in found for i in (v["id"], *v["aliases"])}
    if wrong:
        return _say(f"{len(wrong)} known vulnerabilities; raise the versions, or say in {IGNORED.name} why not", 1)
    if unseen:
        some = ", ".join(sorted(unseen)[:5]) + (" and others" if len(unseen) > 5 else "")
        of = "" if len(unseen) == len(pins) else f" of {len(unseen)} in {len(pins)} dependencies ({some})"
        _say(f"NOT MADE{of}: no advisory service has told of them; NOVA_AUDIT=required has this fail")
        return int(os.environ.get("NOVA_AUDIT") == "required")
    if idle:
        _say(f"no longer needed in {IGNORED.name}: {', '.join(sorted(idle))}")
    return _say(f"no known vulnerability in {len(pins)} dependencies", 0)


def wanted(file: Path) -> list[Requirement]:
    """What users install, with every extra; what only we work with is not in it."""
    project = tomllib.loads(file.read_text())["project"]
    extras = [r for name, some in project["optional-dependencies"].items() if name != "dev" for r in some]
    return [Requirement(r) for r in [*project["dependencies"], *extras]]


def installed(requirements: Iterable[Requirement]) -> Pins:
    """The versions that are here of what is required, and of what that requires."""
    pins: Pins = {}
    open_ = list(requirements)
    seen: set[tuple[str, str]] = set()
    while open_:
        one = open_.pop()
        name = canonicalize_name(one.name)
        for extra in ("", *one.extras):
            if (name, extra) in seen or (one.marker and not one.marker.evaluate({"extra": ""})):
                continue
            seen.add((name, extra))
            try:
                there = metadata.distribution(name)
            except metadata.PackageNotFoundError:
                continue
            pins[name] = there.version
            open_ += _required(there, extra)
    return pins


def _required(there: metadata.Distribution, extra: str) -> Iterator[Requirement]:
    for requirement in map(Requirement, there.requires or ()):
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            requirement.marker = None
            yield requirement


def reasons(text: str) -> dict[str, str]:
    """Advisory -> why it is passed over. Raises ValueError for one without a reason."""
    found = {}
    for line in text.splitlines():
        advisory, _, reason = (part.strip() for part in line.partition("#"))
        if advisory and not reason:
            raise ValueError(f"{IGNORED.name} does not say why {advisory} is passed over: {advisory}  # reason")
        if advisory:
            found[advisory] = reason
    return found


def asked(pins: Pins, ask: Callable[[Pins, str], Answer]) -> tuple[list[dict[str, Any]], set[str]]:
    """The vulnerabilities, and those of which no service knows anything.

    A service that does not know a version at all has not said that it is a good one.
    """
    found: list[dict[str, Any]] = []
    unseen = dict(pins)
    for service in SERVICES:
        for told in ask(unseen, service) if unseen else []:
            if "skip_reason" not in told:
                name = canonicalize_name(told["name"])
                where = {"name": name, "version": unseen.pop(name, told["version"])}
                found += [{"aliases": [], "fix_versions": [], **v, **where} for v in told["vulns"]]
    return found, set(unseen)


def ask(pins: Pins, service: str) -> Answer:
    """What a service says of these versions; nothing where it cannot be reached."""
    with tempfile.TemporaryDirectory() as folder:
        listed, out = Path(folder) / "requirements.txt", Path(folder) / "audit.json"
        listed.write_text("".join(f"{name}=={version}\n" for name, version in sorted(pins.items())))
        options = [
            "--no-deps",
            "--disable-pip",
            "--progress-spinner=off",
            "--timeout=15",
            f"--vulnerability-service={service}",
        ]
        command = [
            sys.executable,
            "-m",
            "pip_audit",
            f"--requirement={listed}",
            *options,
            "--format=json",
            f"--output={out}",
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if out.is_file() and out.stat().st_size:
            answer: Answer = json.loads(out.read_text())["dependencies"]
            return answer
        why = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        _say(f"{service} cannot be asked: {why[:200]}")
        return []


def _say(text: str, code: int = 0) -> int:
    print(f"audit: {text}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
