#!/usr/bin/env bash
# Prints the path of a Python interpreter with the packages that requirements.txt pins, beside which is a Triton Inference Server.
# ci/venv makes the environment.
#
# Needs Python 3.10 to 3.12: PYTHON, python3, or what ci/python finds.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PYTHON=${PYTHON:-python3}
# There is no NumPy 1 for later versions.
"$PYTHON" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 13))' || PYTHON=$("$here/../../ci/python" 3.12)
exec "$here/../../ci/venv" "$here/requirements.txt" "$here/tritonserver.sh"
