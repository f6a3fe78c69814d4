#!/usr/bin/env bash
# Makes a Python environment in integration/cuda/.venv with the packages that
# requirements.txt pins, and in it builds nanoarrow from its published source with
# CUDA; both again when that file, this script or the interpreter changes. Prints the
# path of its interpreter.
#
#   integration/cuda/venv.sh [--cuda-13] DRIVER   with .venv-13 and requirements-13.txt; nanoarrow is linked to DRIVER
#
# Needs gcc and python3 (PYTHON and CC name others).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=$here/.venv requirements=$here/requirements.txt
header='import nvidia.cuda_runtime as r; print(r.__path__[0])'
if [[ ${1:-} == --cuda-13 ]]; then
	shift
	venv=$here/.venv-13 requirements=$here/requirements-13.txt
	header='import nvidia.cu13 as r; print(r.__path__[0])'
fi
driver=${1:?usage: venv.sh [--cuda-13] DRIVER}
nanoarrow=0.6.0

pip() {
	"$venv/bin/python" -m pip "$1" --quiet --no-input --disable-pip-version-check "${@:2}" >&2
}

# The stamp is written last, so that an installation that broke off is redone.
wanted=$("${PYTHON:-python3}" -VV && cat "$requirements" "$here/venv.sh")
if [[ ! -f $venv/stamp || $(<"$venv/stamp") != "$wanted" ]]; then
	rm -rf "$venv"
	"${PYTHON:-python3}" -m venv "$venv"
	pip install --only-binary :all: --requirement "$requirements"

	# The linker asks for the name without a version; which driver it finds does
	# not matter, as the programs load the one to test before nanoarrow is imported.
	mkdir "$venv/link"
	ln -s "$driver" "$venv/link/libcuda.so"
	# No cache: it may hold a nanoarrow that was built without CUDA.
	# LIBRARY_PATH and not LDFLAGS=-L, which setuptools splits at the spaces of a path.
	NANOARROW_PYTHON_CUDA_HOME=$("$venv/bin/python" -c "$header") LIBRARY_PATH=$venv/link${LIBRARY_PATH:+:$LIBRARY_PATH} \
		pip wheel --no-deps --no-build-isolation --no-cache-dir --no-binary nanoarrow \
		--wheel-dir "$venv/wheels" "nanoarrow==$nanoarrow"
	pip install --no-deps --no-index "$venv/wheels/nanoarrow-$nanoarrow"-*.whl
	printf '%s\n' "$wanted" >"$venv/stamp"
fi
printf '%s\n' "$venv/bin/python"
