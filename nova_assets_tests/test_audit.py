"""The audit of dependencies, with a pip-audit that says what it is told to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]

# Says of every dependency what ANSWERS has for the service, or of none where it has nothing.
STANDS_IN = """
import json, os, sys
options = dict(a.lstrip("-").partition("=")[::2] for a in sys.argv[1:])
answers = json.loads(os.environ["ANSWERS"]).get(options["vulnerability-service"])
if answers is None:
    sys.exit("the network is down")
pins = [line.strip().split("==") for line in open(options["requirement"])]
told = [{"name": n, "version": v, **answers.get(n, answers["others"])} for n, v in pins]
json.dump({"dependencies": told}, open(options["output"], "w"))
sys.exit(any(t.get("vulns") for t in told))
"""

FINE, UNKNOWN = {"vulns": []}, {"skip_reason": "Dependency not found on PyPI"}
HOLE = {"vulns": [{"id": "PYSEC-1", "aliases": ["CVE-1", "GHSA-1"], "fix_versions": ["9.9"], "description": "x"}]}


def audit(folder: Path, answers: object, ignored: str = "", required: bool = False) -> tuple[int, str]:
    """(exit code, output)."""
    for name in ("tools/audit.py", "pyproject.toml"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text((ROOT / name).read_text())
    (folder / "tools" / "audit_ignored.txt").write_text(ignored)
    (folder / "pip_audit.py").write_text(STANDS_IN)
    environment = {**os.environ, "PYTHONPATH": str(folder), "ANSWERS": json.dumps(answers)}
    environment["NOVA_AUDIT"] = "required" if required else ""
    command = [sys.executable, folder / "tools" / "audit.py"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


def test_dependencies_without_a_known_vulnerability_pass(tmp_path: Path) -> None:
    code, said = audit(tmp_path, {"pypi": {"others": FINE}}, required=True)
    assert code == 0 and "no known vulnerability in" in said


def test_a_known_vulnerability_fails_and_says_what_to_do(tmp_path: Path) -> None:
    code, said = audit(tmp_path, {"pypi": {"others": FINE, "sqlalchemy": HOLE}})
    assert code == 1 and "sqlalchemy" in said and "PYSEC-1, mended in 9.9" in said


@pytest.mark.parametrize("advisory", ["PYSEC-1", "CVE-1", "GHSA-1"])
def test_one_that_is_passed_over_needs_a_reason(tmp_path: Path, advisory: str) -> None:
    answers = {"pypi": {"others": FINE, "sqlalchemy": HOLE}}
    assert audit(tmp_path, answers, f"{advisory}  # nobody calls that here\n")[0] == 0
    code, said = audit(tmp_path, answers, f"# a line of words\n{advisory}\n")
    assert code == 1 and f"does not say why {advisory}" in said
    said = audit(tmp_path, {"pypi": {"others": FINE}}, f"{advisory}  # mended since\n")[1]
    assert f"no longer needed in audit_ignored.txt: {advisory}" in said


@pytest.mark.parametrize("answers", [{}, {"pypi": {"others": UNKNOWN}}, {"osv": {"others": UNKNOWN}}])
def test_an_audit_that_could_not_be_made_says_so_and_fails_where_it_is_required(
    tmp_path: Path, answers: object
) -> None:
    code, said = audit(tmp_path, answers)
    assert code == 0 and "NOT MADE" in said and "no known vulnerability" not in said
    assert audit(tmp_path, answers, required=True)[0] == 1


def test_what_one_service_does_not_know_another_is_asked_for(tmp_path: Path) -> None:
    answers = {"pypi": {"others": FINE, "sqlalchemy": UNKNOWN}, "osv": {"others": HOLE}}
    code, said = audit(tmp_path, answers)
    assert code == 1 and said.count("PYSEC-1") == 1 and "sqlalchemy" in said
    code, said = audit(tmp_path, {"pypi": {"others": FINE, "sqlalchemy": UNKNOWN}})
    assert code == 0 and "NOT MADE of 1 in" in said and "(sqlalchemy)" in said


def test_what_only_we_work_with_is_not_audited(tmp_path: Path) -> None:
    names = audit(tmp_path, {"pypi": {"others": HOLE}})[1]
    assert "sqlalchemy" in names and "fastapi" in names and "pytest" not in names and "moto" not in names
