#!/usr/bin/env bash
# The two implementations of package share, Go's and Python's, against each other, and against owners, openers and tickets that
# break its rules. Host memory, and memory of a GPU on the simulated driver.
#
#   integration/share/run.sh [ARGUMENT...]   arguments go to pytest
#
# SHARE_INTERRUPTS=1000 has each test of signals at random times raise that many exceptions, and not 60.
#
# Needs Go, gcc and python3 (PYTHON, GO and CC name others). Makes the Python environment with ci/venv.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$(dirname "$here")")
python=$("$root/ci/venv" "$here/requirements.txt")

export SHAREPEER=$root/build/sharepeer
cd "$root"
mkdir -p build
"${GO:-go}" build -o "$SHAREPEER" ./integration/share/peer
DEVICE_DRIVER=$("${GO:-go}" run ./cudasim/build)
export DEVICE_DRIVER
cd "$here"
exec "$python" -m pytest "$@"
