#!/usr/bin/env bash
# Numba and nanoarrow, as their authors publish them, on the simulated CUDA driver:
# by themselves, and with arrays on the device that Go makes and takes, also as
# arguments and results of Go functions in Python.
#
#   integration/cuda/run.sh [--cuda-13] [ARGUMENT...]   arguments go to pytest
#
# With --cuda-13: numba-cuda and cuda-core, over cuda-bindings, on a simulated
# driver of CUDA 13. Numba and numba-cuda cannot be in one environment, so there
# are two, and each runs the tests of its packages; see conftest.py.
#
# Needs Go, gcc and python3 (PYTHON, GO and CC name others). Makes a Python
# environment in integration/cuda/.venv (.venv-13) with the packages that
# requirements.txt (requirements-13.txt) pins, and in it builds nanoarrow from
# its published source with CUDA; both again when that file, this script or the
# interpreter changes.
#
# CDEVICE_CUDA_DRIVER=PATH runs the tests on that libcuda.so.1 instead. Tests that
# need the simulator, or devices that are not there, are skipped then. With
# CDEVICE_REQUIRE=cuda a skip is a failure; what is known to be missing is left out
# with -m 'not simulator and not two_devices'.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$(dirname "$here")")
venv=$here/.venv requirements=$here/requirements.txt version=12040
header='import nvidia.cuda_runtime as r; print(r.__path__[0])'
if [[ ${1:-} == --cuda-13 ]]; then
	shift
	venv=$here/.venv-13 requirements=$here/requirements-13.txt version=13000
	header='import nvidia.cu13 as r; print(r.__path__[0])'
fi
nanoarrow=0.6.0

cd "$root"
if [[ -n ${CDEVICE_CUDA_DRIVER:-} ]]; then
	driver=$(realpath -e "$CDEVICE_CUDA_DRIVER")
else
	driver=$("${GO:-go}" run ./cudasim/build -version "$version")
fi

pip() {
	"$venv/bin/python" -m pip "$1" --quiet --no-input --disable-pip-version-check "${@:2}"
}

# The stamp is written last, so that an installation that broke off is redone.
wanted=$("${PYTHON:-python3}" -VV && cat "$requirements" "$here/run.sh")
if [[ ! -f $venv/stamp || $(<"$venv/stamp") != "$wanted" ]]; then
	rm -rf "$venv"
	"${PYTHON:-python3}" -m venv "$venv"
	pip install --only-binary :all: --requirement "$requirements"

	# The linker asks for the name without a version; which driver it finds does
	# not matter, as conftest.py loads the one to test before nanoarrow is imported.
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

# One path, and so one copy of the driver in the process.
export NUMBA_CUDA_DRIVER=$driver CDEVICE_CUDA_DRIVER=$driver
export GOLIB=$root/build/libgolib.so TESTEXTENSION=$root/build/libtestextension.so
"${GO:-go}" build -buildmode=c-shared -o "$GOLIB" ./integration/golib
"${GO:-go}" build -buildmode=c-shared -o "$TESTEXTENSION" ./integration/pyextension

# pytest captures standard error, and golib writes the traceback of a crash here.
exec {crash}>&2
export GOLIB_CRASH_FD=$crash
cd "$here"
exec "$venv/bin/python" -m pytest "$@"
