#!/usr/bin/env bash
# nanoarrow.sh VENV: builds nanoarrow in a new Python environment, for ci/venv: there is no wheel for its Python.
set -euo pipefail

# -O0: half of the time; nothing here is measured.
CFLAGS=-O0 "$1/bin/python" -m pip install --quiet --no-input --disable-pip-version-check --no-deps --no-binary nanoarrow nanoarrow==0.9.0
