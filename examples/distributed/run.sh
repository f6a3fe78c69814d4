#!/usr/bin/env bash
# Orders summed up by a Go extension in the workers of a Dask cluster on this machine.
#
#   examples/distributed/run.sh [OPTION...]          the program; --help has its options
#   examples/distributed/run.sh --test [ARGUMENT...] the tests; arguments go to pytest
#
# Needs Go, gcc and python3 (PYTHON, GO and CC name others). ci/venv makes a Python environment; the
# extension is built and installed to build/distributed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
python=$("$root/ci/venv" "$here/requirements.txt")
installed=$root/build/distributed/installed
export PYTHONPATH=$installed${PYTHONPATH:+:$PYTHONPATH}

# install builds the wheel of a Go package, and installs it if it is another one than before: the
# same sources give the same bytes.
install() {
	wheel=$(cd "$root" && PYTHONPATH=python "$python" -m arrowdevice.build "$here/$1" -o "$root/build/distributed")
	cmp --silent "$wheel" "$installed/$1.whl" && return
	"$python" -m pip install --quiet --no-input --disable-pip-version-check \
		--no-index --no-deps --no-cache-dir --upgrade --target "$installed" "$wheel" >&2
	cp "$wheel" "$installed/$1.whl"
}
mkdir -p "$installed"
install orders

if [[ " $* " == *" --device "* || ${1:-} == --test ]] && [[ -z ${CDEVICE_CUDA_DRIVER:-} ]] &&
	! "$python" -c 'import ctypes; exit(ctypes.CDLL("libcuda.so.1").cuInit(0))' 2>/dev/null; then
	CDEVICE_CUDA_DRIVER=$(cd "$root" && "${GO:-go}" run ./cudasim/build) # there is no GPU: a simulated one
	export CDEVICE_CUDA_DRIVER
fi
cd "$here"
if [[ ${1:-} == --test ]]; then
	shift
	install trouble
	exec "$python" -m pytest -p no:cacheprovider "$@"
fi
exec "$python" main.py "$@"
