#!/usr/bin/env bash
# Numba, nanoarrow and cuda-core, as their authors publish them, on the simulated CUDA
# driver, with arrays on the device that Go makes and takes, also as arguments and
# results of Go functions in Python.
#
#   integration/cuda/run.sh [--cuda-13] [ARGUMENT...]   arguments go to pytest
#
# With --cuda-13: numba-cuda and cuda-core, over cuda-bindings, on a simulated
# driver of CUDA 13. Numba and numba-cuda cannot be in one environment, so there
# are two. Tests of nanoarrow, which are the same in both, run in the first only; see
# conftest.py.
#
# Needs Go, gcc and python3 (PYTHON, GO and CC name others). venv.sh makes the Python
# environment with the packages.
#
# CDEVICE_CUDA_DRIVER=PATH runs the tests on that libcuda.so.1 instead. Tests that
# need the simulator, or devices that are not there, are skipped then. With
# CDEVICE_REQUIRE=cuda a skip is a failure; what is known to be missing is left out
# with -m 'not simulator and not two_devices'.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$(dirname "$here")")
cuda=() version=12040
if [[ ${1:-} == --cuda-13 ]]; then
	shift
	cuda=(--cuda-13) version=13000
fi

cd "$root"
if [[ -n ${CDEVICE_CUDA_DRIVER:-} ]]; then
	driver=$(realpath -e "$CDEVICE_CUDA_DRIVER")
else
	driver=$("${GO:-go}" run ./cudasim/build -version "$version")
fi
python=$("$here/venv.sh" "${cuda[@]}" "$driver")

# One path, and so one copy of the driver in the process.
export NUMBA_CUDA_DRIVER=$driver CDEVICE_CUDA_DRIVER=$driver
export IPCPEER=$root/build/ipcpeer SHAREPEER=$root/build/sharepeer
export GOLIB=$root/build/libgolib.so
integration/build.sh
"${GO:-go}" build -o "$IPCPEER" ./integration/ipcpeer
"${GO:-go}" build -o "$SHAREPEER" ./integration/share/peer

# pytest captures standard error, and golib writes the traceback of a crash here.
exec {crash}>&2
export GOLIB_CRASH_FD=$crash
cd "$here"
exec "$python" -m pytest "$@"
