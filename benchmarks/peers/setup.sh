#!/bin/sh
# Makes .venv-peers/, in which `python -m benchmarks.peers` runs: Spark 3.5 and the peers, as they are pinned.
# Called by `make peers`; PYTHON is the Python to make it with, VENV the folder.
set -eu
cd "$(dirname "$0")/../.."
PYTHON=${PYTHON:-python3}
VENV=${VENV:-.venv-peers}

[ -x "$VENV"/bin/python ] || "$PYTHON" -m venv "$VENV"
"$VENV"/bin/python -m pip install --disable-pip-version-check --editable . --requirement benchmarks/peers/requirements.txt
