#!/usr/bin/env bash
# Regions of interop/triton in two processes: a Go program shares batches, and a server in Python, with the
# messages of Triton's own client, opens them on the simulated CUDA driver. No Triton takes part.
#
#   integration/triton/run.sh [ARGUMENT...]   arguments go to go test
#
# Needs Go, gcc and python3 (PYTHON, GO and CC name others). ci/venv makes the Python
# environment with the packages.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$(dirname "$(dirname "$here")")"
TRITON_PYTHON=$(ci/venv "$here/requirements.txt")
export TRITON_PYTHON
exec "${GO:-go}" test -count=1 -timeout 10m "$@" ./integration/triton
