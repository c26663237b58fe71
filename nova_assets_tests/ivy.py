"""Jars from Maven Central or from Ivy's cache, fetched by the Ivy that PySpark brings."""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark

from nova_assets.engine.session.java import find_java


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Two processes that fill an empty cache of Ivy at once find each other's half of a download."""
    with Path(tempfile.gettempdir(), "nova-tests-ivy.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class JarsUnavailable(Exception):
    """Ivy cannot fetch the jars here; the message says why."""


def fetch_jars(versions_by_organisation: Mapping[str, Mapping[str, str]], folder: Path) -> list[Path]:
    """Put jars into a folder.

    Args:
        versions_by_organisation: organisation -> name of a jar -> its version.

    Raises:
        JarsUnavailable.
    """
    folder.mkdir(parents=True, exist_ok=True)
    modules = "".join(
        f'<dependency org="{organisation}" name="{name}" rev="{version}" transitive="false"/>'
        for organisation, versions in versions_by_organisation.items()
        for name, version in versions.items()
    )
    (folder / "ivy.xml").write_text(
        '<ivy-module version="2.0"><info organisation="nova" module="tests"/>'
        f"<dependencies>{modules}</dependencies></ivy-module>"
    )
    java, ivy = find_java().home / "bin" / "java", os.path.join(os.path.dirname(pyspark.__file__), "jars", "*")
    command = [str(java), "-cp", ivy, "org.apache.ivy.Main", "-ivy", "ivy.xml", "-types", "jar", "bundle"]
    command += ["-retrieve", "[artifact]-[revision].[ext]"]
    with _one_at_a_time():
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    jars = sorted(folder.glob("*.jar"))
    if len(jars) != sum(map(len, versions_by_organisation.values())):
        raise JarsUnavailable(f"Ivy did not fetch them:\n{(done.stdout + done.stderr)[-1000:]}")
    return jars
