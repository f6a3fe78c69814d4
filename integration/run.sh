#!/usr/bin/env bash
# The library against PyArrow, in one Python process.
#
#   integration/run.sh [ARGUMENT...]   the tests; arguments go to pytest
#   integration/run.sh --demo          demo.py instead
#
# Needs Go, gcc and python3 (PYTHON and GO name others). Makes a Python
# environment in integration/.venv with what python/requirements.txt pins, again
# when that file or the interpreter changes, and builds what it loads to build/.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
venv=$here/.venv

# The stamp is written last, so that an installation that broke off is redone.
wanted=$("${PYTHON:-python3}" -VV && cat "$here/python/requirements.txt")
if [[ ! -f $venv/stamp || $(<"$venv/stamp") != "$wanted" ]]; then
	rm -rf "$venv"
	"${PYTHON:-python3}" -m venv "$venv"
	"$venv/bin/python" -m pip install --quiet --no-input --disable-pip-version-check \
		--only-binary :all: --requirement "$here/python/requirements.txt"
	printf '%s\n' "$wanted" >"$venv/stamp"
fi

export GOLIB=$root/build/libgolib.so PYEXTENSION=$root/build/libpyextension.so
cd "$root"
"${GO:-go}" build -buildmode=c-shared -o "$GOLIB" ./integration/golib

if [[ ${1:-} == --demo ]]; then
	shift
	# Without a GPU the demo has a simulated one.
	if [[ -z ${CDEVICE_CUDA_DRIVER:-} ]] &&
		! "$venv/bin/python" -c 'import ctypes; exit(ctypes.CDLL("libcuda.so.1").cuInit(0))' 2>/dev/null; then
		CDEVICE_CUDA_DRIVER=$("${GO:-go}" run ./cudasim/build)
		export CDEVICE_CUDA_DRIVER
	fi
	exec "$venv/bin/python" "$here/demo.py" "$@"
fi
"${GO:-go}" build -buildmode=c-shared -o "$PYEXTENSION" ./examples/pyextension
cd "$here/python"
exec "$venv/bin/python" -m pytest "$@"
