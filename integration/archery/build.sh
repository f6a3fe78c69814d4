#!/usr/bin/env bash
# Builds the libraries with Archery's entry points into build/archery, again when
# what they are made of changed:
#
#   libarrowgo.so    arrow-go's own
#   libcdata.so      the same with package cdata of this module in place of arrow-go's
#   libnanoarrow.so  nanoarrow's own
#
# That of package cdevice is ../golib, for which arrow-go's reads the JSON files: its reader
# is internal. nanoarrow's is in its source archive on PyPI, without the JSON
# parser that it needs, which is in that of jsonnet.
#
#   integration/archery/build.sh PYTHON    PYTHON: an interpreter with pip
#
# GO, CC and CXX name other tools.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$(dirname "$here")")
out=$root/build/archery
python=$1
# nanoarrow is the version that the environment has, which the table of peers names.
nanoarrow=$("$python" -c 'import importlib.metadata as m; print(m.version("nanoarrow"))') jsonnet=0.22.0
mkdir -p "$out"

# unpacked NAME VERSION [ARGUMENT...]: prints the folder with the source archive of a
# package on PyPI. Arguments go to pip.
unpacked() {
	local name=$1 version=$2 folder=$out/$1-$2
	if [[ ! -d $folder ]]; then
		rm -rf "$out/download"
		"$python" -m pip download --quiet --no-input --disable-pip-version-check --no-deps \
			--no-binary "$name" "${@:3}" --dest "$out/download" "$name==$version" >&2
		tar -xzf "$out/download/$name-$version.tar.gz" -C "$out/download"
		mv "$out/download/$name-$version" "$folder"
	fi
	printf '%s\n' "$folder"
}

build_nanoarrow() {
	local source json build=$out/nanoarrow-build wanted
	wanted="$nanoarrow $jsonnet $(cat "$here/build.sh") $(${CXX:-g++} --version)"
	if [[ -f $build/stamp && $(<"$build/stamp") == "$wanted" ]]; then
		return
	fi
	# With pip/, which has a build backend that does not compile the package.
	source=$(PYTHONPATH=$here/pip NANOARROW_VERSION=$nanoarrow unpacked nanoarrow "$nanoarrow" --no-build-isolation)
	source=$source/subprojects/arrow-nanoarrow/src
	json=$(unpacked jsonnet "$jsonnet")/third_party/json
	rm -rf "$build"
	mkdir -p "$build/nanoarrow"
	local major minor patch
	IFS=. read -r major minor patch <<<"$nanoarrow"
	sed -e "s/@NANOARROW_VERSION_MAJOR@/$major/" -e "s/@NANOARROW_VERSION_MINOR@/$minor/" \
		-e "s/@NANOARROW_VERSION_PATCH@/$patch/" -e "s/@NANOARROW_VERSION@/$nanoarrow/" \
		-e 's/@NANOARROW_NAMESPACE_DEFINE@//' "$source/nanoarrow/nanoarrow_config.h.in" >"$build/nanoarrow/nanoarrow_config.h"
	local flags=(-fPIC -O1 -isystem "$build" -isystem "$source" -isystem "$json")
	for name in array array_stream schema utils; do
		"${CC:-gcc}" -std=c99 "${flags[@]}" -c -o "$build/$name.o" "$source/nanoarrow/common/$name.c" &
	done
	"${CXX:-g++}" -std=c++17 "${flags[@]}" -c -o "$build/testing.o" "$source/nanoarrow/testing/testing.cc" &
	"${CXX:-g++}" -std=c++17 "${flags[@]}" -c -o "$build/integration.o" "$source/nanoarrow/integration/c_data_integration.cc" &
	local job
	for job in $(jobs -p); do wait "$job"; done
	"${CXX:-g++}" -shared -o "$out/libnanoarrow.so" "$build"/*.o
	printf '%s\n' "$wanted" >"$build/stamp"
}

build_nanoarrow
cd "$root"
"${GO:-go}" build -tags cdata_integration -buildmode=c-shared -trimpath -ldflags=-w -o "$out/libarrowgo.so" \
	github.com/apache/arrow-go/v18/arrow/internal/cdata_integration
cd "$("$root/integration/cdata/module.sh")"
"${GO:-go}" build -buildmode=c-shared -trimpath -ldflags=-w -o "$out/libcdata.so" ./archery
