#!/usr/bin/env bash
# Prints the path of a Python interpreter with the packages that requirements.txt pins, and nanoarrow, built from its
# published source with CUDA. ci/venv makes the environment.
#
#   integration/cuda/venv.sh [--cuda-13] DRIVER   with requirements-13.txt; nanoarrow is linked to DRIVER
#
# Needs gcc and python3 (PYTHON and CC name others).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
requirements=$here/requirements.txt
if [[ ${1:-} == --cuda-13 ]]; then
	shift
	requirements=$here/requirements-13.txt
fi
exec "$here/../../ci/venv" "$requirements" "$here/nanoarrow.sh" "${1:?usage: venv.sh [--cuda-13] DRIVER}"
