#!/usr/bin/env bash
# Orders summed up by a Go extension in the workers of a Dask cluster on this machine.
#
#   examples/distributed/run.sh [OPTION...]          the program; --help has its options
#   examples/distributed/run.sh --test [ARGUMENT...] the tests; arguments go to pytest
#
# Needs Go, gcc and python3 (PYTHON, GO and CC name others). Makes a Python environment in .venv
# beside this file, and builds and installs the extension.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
venv=$here/.venv

# The stamp is written last, so that an installation that broke off is redone.
wanted=$("${PYTHON:-python3}" -VV && cat "$here/requirements.txt")
if [[ ! -f $venv/stamp || $(<"$venv/stamp") != "$wanted" ]]; then
	rm -rf "$venv"
	"${PYTHON:-python3}" -m venv "$venv"
	"$venv/bin/python" -m pip install --quiet --no-input --disable-pip-version-check \
		--only-binary :all: --requirement "$here/requirements.txt" >&2
	printf '%s\n' "$wanted" >"$venv/stamp"
fi

# install builds the wheel of a Go package, and installs it if it is another one than before: the
# same sources give the same bytes.
install() {
	wheel=$(cd "$root" && PYTHONPATH=python "$venv/bin/python" -m arrowdevice.build "$here/$1" -o "$root/build/distributed")
	cmp --silent "$wheel" "$venv/$1.whl" && return
	"$venv/bin/python" -m pip install --quiet --no-input --disable-pip-version-check \
		--no-index --no-deps --no-cache-dir --force-reinstall "$wheel" >&2
	cp "$wheel" "$venv/$1.whl"
}
mkdir -p "$root/build/distributed"
install orders

if [[ " $* " == *" --device "* || ${1:-} == --test ]] && [[ -z ${CDEVICE_CUDA_DRIVER:-} ]] &&
	! "$venv/bin/python" -c 'import ctypes; exit(ctypes.CDLL("libcuda.so.1").cuInit(0))' 2>/dev/null; then
	CDEVICE_CUDA_DRIVER=$(cd "$root" && "${GO:-go}" run ./cudasim/build) # there is no GPU: a simulated one
	export CDEVICE_CUDA_DRIVER
fi
cd "$here"
if [[ ${1:-} == --test ]]; then
	shift
	install trouble
	exec "$venv/bin/python" -m pytest -p no:cacheprovider "$@"
fi
exec "$venv/bin/python" main.py "$@"
