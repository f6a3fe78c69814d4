#!/usr/bin/env bash
# interop/triton with Triton Inference Server 2.51.0 (24.10), which runs models of its Python backend without a GPU. Regions of
# CUDA shared memory go through a proxy, which opens their handles on the simulated CUDA driver.
#
#   integration/triton/run.sh [ARGUMENT...]   arguments go to go test
#
# Needs Go, gcc and Python 3.10 to 3.12 (PYTHON, GO and CC name others). ci/venv makes the Python environment with the packages
# and the server.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$(dirname "$(dirname "$here")")"
# There is no NumPy 1 for later versions.
"${PYTHON:-python3}" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 13))' || PYTHON=$(ci/python 3.12)
export PYTHON=${PYTHON:-python3}
TRITON_PYTHON=$(ci/venv "$here/requirements.txt" "$here/tritonserver.sh")
export TRITON_PYTHON
exec "${GO:-go}" test -count=1 -timeout 4m "$@" ./integration/triton
