#!/usr/bin/env bash
# Results of queries that go to a GPU and back: of DuckDB, and over ADBC of SQLite.
#
#   examples/sql/run.sh          both programs; without a GPU, on the simulated driver
#   examples/sql/run.sh --test   the same, and what they print; the simulated driver checks waits and leaks
#
# Needs Go, gcc, g++ and python3 (PYTHON, GO, CC and CXX name others). ci/venv installs the driver of SQLite, which
# is in a Python package; the programs are built to build/sql.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
built=$root/build/sql
go=${GO:-go}
python=$("$root/ci/venv" "$here/requirements.txt")
sqlite=$("$python" -c 'import adbc_driver_sqlite; print(adbc_driver_sqlite._driver_path())')

mkdir -p "$built"
(cd "$here" && "$go" build -tags duckdb_arrow -ldflags=-w -o "$built" ./duckdb ./adbc)
on_gpu=()
if [[ -z ${CDEVICE_CUDA_DRIVER:-} ]] &&
	! "$python" -c 'import ctypes; exit(ctypes.CDLL("libcuda.so.1").cuInit(0))' 2>/dev/null; then
	(cd "$root" && "$go" build -o "$built/simulated" ./cudasim/run) # there is no GPU
	on_gpu=("$built/simulated" -leaks)
fi

if [[ ${1:-} != --test ]]; then
	"${on_gpu[@]}" "$built/duckdb"
	"${on_gpu[@]}" "$built/adbc" "$sqlite"
	exit
fi

fail() {
	echo "examples/sql: $*" >&2
	exit 1
}
for program in duckdb adbc; do
	printed=$(CDEVICE_TRACE=1 "${on_gpu[@]}" "$built/$program" "$sqlite")
	[[ $printed == "5000 rows, the level moves by 744309, in SQL by 744309" ]] || fail "$program prints: $printed"
	if said=$(CDEVICE_CUDA_DRIVER=$built/none "$built/$program" "$sqlite" 2>&1); then fail "$program succeeds without a driver"; fi
	[[ $said == *"; without a GPU: go run "*"./$program"* ]] || fail "$program says without a driver: $said"
	echo "$program: $printed"
done
