#!/usr/bin/env bash
# Programs that use arrow-go's package cdata, with this module's in its place: duckdb-go, and the driver manager of ADBC with
# SQLite's driver. Their own tests, then those in this folder.
#
#   integration/programs/run.sh [ARGUMENT...]              with arguments, which go to go test, only those in this folder
#   integration/programs/run.sh --arrow-go [ARGUMENT...]   with arrow-go's package, to compare
#
# Needs Go, gcc, g++ and python3 (PYTHON, GO, CC and CXX name others). go.mod and requirements.txt pin the programs. Those
# that are tested are copies in build/programs, in which one import line is another.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
export GOWORK=off # go.mod is another one below
go=${GO:-go}
duckdb=github.com/duckdb/duckdb-go
adbc=github.com/apache/arrow-adbc/go/adbc
theirs='"github.com/apache/arrow-go/v18/arrow/cdata"'
ours='"github.com/arrowdevice/arrowdevice/cdata"'

modfile=go.mod
if [[ ${1:-} == --arrow-go ]]; then
	shift
else
	build=$(realpath ../..)/build/programs
	rm -rf "$build"
	mkdir -p "$build"
	cp go.mod go.sum "$build"
	modfile=$build/go.mod
	modules=("$duckdb/v2" "$duckdb-bindings" "$adbc")
	"$go" mod download "${modules[@]}"
	while read -r module folder; do
		mkdir -p "$build/$module"
		cp -r "$folder/." "$build/$module"
		chmod -R u+w "$build/$module"
		grep -rlF --include='*.go' "$theirs" "$build/$module" | xargs sed -i "s|$theirs|$ours|"
		"$go" mod edit -replace="$module=$build/$module" "$modfile"
	done < <("$go" list -m -f '{{.Path}} {{.Dir}}' "${modules[@]}")
	"$go" mod edit -replace="github.com/arrowdevice/arrowdevice=$(realpath ../..)" "$modfile"
fi

# The driver manager loads SQLite's driver by its name.
python=$(../../ci/venv requirements.txt)
drivers=$("$python" -c 'import adbc_driver_sqlite as d; print(d.__path__[0])')
export LD_LIBRARY_PATH=$drivers${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# Without DWARF a test binary, to which 130 MB of DuckDB are linked, takes half of the time.
check=("$go" test -modfile="$modfile" -tags duckdb_arrow -ldflags=-w -timeout 10m)
if (($#)); then
	exec "${check[@]}" "$@" ./...
fi
"${check[@]}" -vet=off -run Arrow "$duckdb/v2" "$duckdb-bindings"
"${check[@]}" -vet=off -skip TestArrFromVal "$adbc/drivermgr" "$adbc/sqldriver" # which fails with arrow-go v18.8.0
"${check[@]}" ./...
