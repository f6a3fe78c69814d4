#!/usr/bin/env bash
# A loader in Go and a trainer in Python, which reads the loader's memory.
#
#   examples/training/run.sh [ROWS [BATCHES]]          the trainer
#   examples/training/run.sh --compare [MEGABYTES...]  against pickling and Flight
#   examples/training/run.sh --test [ARGUMENT...]      the tests; arguments go to pytest
#
# Needs Go, gcc and python3 (PYTHON, GO and CC name others). ci/venv makes a Python environment.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
python=$("$root/ci/venv" "$here/requirements.txt")
export PYTHONPATH=$root/python${PYTHONPATH:+:$PYTHONPATH}
export LOADER=$root/build/loader
mkdir -p "$root/build"
(cd "$root" && "${GO:-go}" build -o "$LOADER" ./examples/training/loader)
cd "$here"
case ${1:-} in
--test) exec "$python" -m pytest "${@:2}" ;;
--compare) exec "$python" compare.py "${@:2}" ;;
*) exec "$python" train.py "$@" ;;
esac
