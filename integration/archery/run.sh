#!/usr/bin/env bash
# Archery's C data integration, without Archery: this module, arrow-go and nanoarrow
# exchange schemas and batches as plain C structs, in one process, and each compares
# what it imported to the same JSON file. This module does it on the CPU and through
# the memory of a simulated GPU.
#
#   integration/archery/run.sh [ARGUMENT...]   arguments go to pytest
#
# Needs Go, gcc, g++ and python3 (PYTHON, GO, CC and CXX name others). Uses the Python
# environment of integration/run.sh, and build.sh for the libraries.
# ARCHERY_SEED=N makes other values. CDEVICE_CUDA_DRIVER=PATH names another driver.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$(dirname "$here")")
python=$("$root/ci/venv" "$root/integration/python/requirements.txt")

"$root/integration/build.sh"
"$here/build.sh" "$python"
export GOLIB=$root/build/libgolib.so
export ARCHERY_LIBRARIES=$root/build/archery
cd "$root"
if [[ -z ${CDEVICE_CUDA_DRIVER:-} ]]; then
	CDEVICE_CUDA_DRIVER=$("${GO:-go}" run ./cudasim/build)
fi
# Streams overtake each other and are late, so a missing wait is seen.
export CDEVICE_CUDA_DRIVER NUMBA_CUDA_DRIVER=$CDEVICE_CUDA_DRIVER
export CUDASIM=schedule=random,delay=100,seed=7,pageable_async=1
cd "$here"
exec "$python" -m pytest "$@"
