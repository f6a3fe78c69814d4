#!/usr/bin/env bash
# interop/triton with Triton Inference Server 2.51.0 (24.10), which runs models of its Python backend without a GPU. Regions of
# CUDA shared memory go through a proxy, which opens their handles on the simulated CUDA driver.
#
#   integration/triton/run.sh [ARGUMENT...]   arguments go to go test
#
# Needs Go, gcc and what venv.sh needs (GO and CC name others).
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
TRITON_PYTHON=$(./venv.sh)
export TRITON_PYTHON
exec "${GO:-go}" test -count=1 -timeout 4m "$@" .
