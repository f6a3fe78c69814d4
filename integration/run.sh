#!/usr/bin/env bash
# The library against PyArrow, polars, DuckDB, pandas and nanoarrow, in one Python process.
#
#   integration/run.sh [ARGUMENT...]   the tests; arguments go to pytest
#   integration/run.sh --demo          demo.py instead
#
# Needs Go, gcc and python3 (PYTHON, GO and CC name others), and for the tests a
# g++ that knows C++20 (CXX names another). Makes the Python environment with
# ci/venv, and builds the libraries that it loads to build/.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
cd "$root"

# Without a GPU the demo has a simulated one, as the tests have always.
steps=4
if [[ ${1:-} == --demo ]] && { [[ -n ${CDEVICE_CUDA_DRIVER:-} ]] ||
	"${PYTHON:-python3}" -c 'import ctypes; exit(ctypes.CDLL("libcuda.so.1").cuInit(0))' 2>/dev/null; }; then
	steps=3
fi
step() { ci/progress "[$1/$steps] $2" "${@:3}"; }

# Wheels are fetched while Go compiles. A job in a group of its own takes signals, and can be ended with its children.
built=()
"${PYTHON:-python3}" -c 'import sys; exit(sys.version_info < (3, 15))' && built=("$here/python/nanoarrow.sh")
venv=(ci/venv integration/python/requirements.txt "${built[@]}")
set -m
step 1 "Python packages (the first time about a minute)" "${venv[@]}" >/dev/null </dev/null &
packages=$!
set +m
trap 'kill -- "-$packages" 2>/dev/null || true' EXIT

export GOLIB=$root/build/libgolib.so
export GILPRODUCER=$root/build/libgilproducer.so
export FLIGHTPEER=$root/build/flightpeer
step 2 "Go library (the first time about a minute)" integration/build.sh
# As position-independent code, like the library, programs share what is compiled.
step 3 "Go server (the first time 20 seconds)" ci/gobuild -buildmode=pie -trimpath -ldflags=-w -o "$FLIGHTPEER" ./integration/flightpeer
((steps < 4)) || driver=$(step 4 "Simulated GPU (the first time 20 seconds)" "${GO:-go}" run -buildmode=pie -trimpath ./cudasim/build)
wait "$packages"
trap - EXIT
python=$("${venv[@]}")

if [[ ${1:-} == --demo ]]; then
	shift
	[[ -z ${driver:-} ]] || export CDEVICE_CUDA_DRIVER=$driver
	exec "$python" "$here/demo.py" "$@"
fi
export DEVICE_DRIVER=$driver
"${CC:-gcc}" -std=c11 -shared -fPIC -Wall -Wextra -Werror -o "$GILPRODUCER" integration/python/gilproducer.c

# The Arrow C++ peer: against PyArrow's own libarrow, so that both are one library
# in one process. Its headers take time, so only when something changed; the name has the environment.
environment=$(dirname "$(dirname "$python")")
export CPPPEER=$root/build/libcpppeer-${environment##*-}.so
newest=$(ls -t "$CPPPEER" "$here"/cpp/* "$here/run.sh" 2>/dev/null | head -n 1 || true)
if [[ $newest != "$CPPPEER" ]]; then
	cxx=${CXX:-g++}
	if ! command -v "$cxx" >/dev/null; then
		echo "$0: $cxx: not found; the Arrow C++ peer of the tests needs a C++20 compiler (CXX names one)" >&2
		exit 1
	fi
	{ read -r include; read -r libarrow; } < <("$python" -c '
import pyarrow as pa
print(pa.get_include())
print(f"{pa.get_library_dirs()[0]}/libarrow.so.{pa.cpp_build_info.so_version}")')
	ci/progress "Arrow C++ peer (a minute)" "$cxx" -std=c++20 -O1 -Wall -Wextra -fPIC -shared -Wl,--no-undefined -isystem "$include" \
		"$here"/cpp/*.cc "$libarrow" -Wl,-rpath,"$(dirname "$libarrow")" -o "$CPPPEER"
fi

# pytest captures standard error, and golib writes the traceback of a crash here.
exec {crash}>&2
export GOLIB_CRASH_FD=$crash
cd "$here/python"
if (($#)); then
	exec "$python" -m pytest "$@"
fi
# Two processes, as the tests of pyextension wait for others most of the time. They are in front: a shell has what is
# behind ignore SIGINT.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$python" -m pytest --ignore=pyextension &>"$log" &
others=$!
trap 'kill "$others"; exit 130' INT TERM
failed=0
"$python" -m pytest pyextension || failed=$?
wait "$others" || failed=$?
cat "$log"
exit $failed
