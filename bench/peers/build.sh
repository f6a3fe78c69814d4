#!/usr/bin/env bash
# Builds the peers of the benchmarks to build/bench: libarrowcpp.so, libnanoarrow.so, libarrowrs.so, and libendtoend.so, which Python
# loads.
#
#   bench/peers/build.sh
#
# Needs python3, g++ and gcc, and cargo for arrow-rs (PYTHON, CXX, CC and CARGO name others). Arrow C++ is the libarrow
# of PyArrow, in the Python environment of integration/run.sh; nanoarrow is its source
# distribution, which requirements.txt pins with a checksum; pip takes a minute to fetch it, the first time. What is there already, and
# newer than its sources, is kept. A peer that cannot be built is left out, and the benchmark goes on without it.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
out=$root/build/bench
cxx=${CXX:-g++} cc=${CC:-gcc} cargo=${CARGO:-cargo}
mkdir -p "$out"

# fresh reports whether a file is newer than all others that are named.
fresh() {
	local file=$1
	shift
	[[ -f $file && $(ls -t "$file" "$@" | head -n 1) == "$file" ]]
}

arrowcpp() {
	local python include libarrow
	python=$("$root/ci/venv" "$root/integration/python/requirements.txt") || return 1
	fresh "$out/libarrowcpp.so" "$here"/cpp/* "$here/peer.h" "$root/integration/python/requirements.txt" "$here/build.sh" && return
	{ read -r include; read -r libarrow; } < <("$python" -c '
import pyarrow as pa
print(pa.get_include())
print(f"{pa.get_library_dirs()[0]}/libarrow.so.{pa.cpp_build_info.so_version}")')
	"$cxx" -std=c++20 -O2 -Wall -Wextra -fPIC -shared -Wl,--no-undefined -isystem "$include" \
		"$here"/cpp/*.cc "$libarrow" -Wl,-rpath,"$(dirname "$libarrow")" -o "$out/libarrowcpp.so"
}

# The source distribution is fetched once. Its version is in the name of its folder.
nanoarrow_source() {
	local fetched=$out/nanoarrow wanted
	wanted=$(<"$here/nanoarrow/requirements.txt")
	if [[ ! -f $fetched/stamp || $(<"$fetched/stamp") != "$wanted" ]]; then
		rm -rf "$fetched"
		mkdir -p "$fetched"
		"${PYTHON:-python3}" -m pip download --quiet --no-input --disable-pip-version-check --no-deps --no-binary nanoarrow \
			--require-hashes --requirement "$here/nanoarrow/requirements.txt" --dest "$fetched" >&2 || return 1
		tar -xzf "$fetched"/nanoarrow-*.tar.gz -C "$fetched" --strip-components=1 || return 1
		printf '%s\n' "$wanted" >"$fetched/stamp"
	fi
	printf '%s\n' "$fetched/subprojects/arrow-nanoarrow/src"
}

nanoarrow() {
	local source version objects=$out/nanoarrow-objects
	source=$(nanoarrow_source) || return 1
	fresh "$out/libnanoarrow.so" "$here"/nanoarrow/* "$here/peer.h" "$out/nanoarrow/stamp" "$here/build.sh" && return
	version=$(sed -n 's/^nanoarrow==\([0-9.]*\).*/\1/p' "$here/nanoarrow/requirements.txt")
	IFS=. read -r major minor patch <<<"$version"
	rm -rf "$objects"
	mkdir -p "$objects"
	# What its build system would write.
	cat >"$source/nanoarrow/nanoarrow_config.h" <<END
#define NANOARROW_VERSION_MAJOR $major
#define NANOARROW_VERSION_MINOR $minor
#define NANOARROW_VERSION_PATCH $patch
#define NANOARROW_VERSION "$version"
#define NANOARROW_VERSION_INT ($major * 10000 + $minor * 100 + $patch)
#define NANOARROW_NAMESPACE ArrowdeviceBench
#define NANOARROW_CXX_NAMESPACE nanoarrow
#define NANOARROW_CXX_NAMESPACE_BEGIN namespace nanoarrow {
#define NANOARROW_CXX_NAMESPACE_END }
END
	for file in "$source"/nanoarrow/common/{array,array_stream,schema,utils}.c "$source/nanoarrow/device/device.c"; do
		"$cc" -std=c11 -O2 -DNDEBUG -fPIC -I"$source" -c "$file" -o "$objects/$(basename "$file" .c).o" || return 1
	done
	"$cxx" -std=c++20 -O2 -DNDEBUG -Wall -Wextra -fPIC -shared -Wl,--no-undefined -isystem "$source" \
		"$here/nanoarrow/peer.cc" "$objects"/*.o -o "$out/libnanoarrow.so"
}

arrowrs() {
	fresh "$out/libarrowrs.so" "$here"/rust/Cargo.* "$here"/rust/src/* "$here/build.sh" && return
	command -v "$cargo" >/dev/null || return 1
	"$cargo" build --quiet --release --locked --manifest-path "$here/rust/Cargo.toml" --target-dir "$out/rust" || return 1
	cp "$out/rust/release/libarrowrs.so" "$out/libarrowrs.so"
}

# The Go library of bench/endtoend. Go itself knows whether it is fresh.
endtoend() {
	(cd "$root" && "${GO:-go}" build -buildmode=c-shared -trimpath -o "$out/libendtoend.so" ./bench/endtoend)
}

for peer in arrowcpp nanoarrow arrowrs endtoend; do
	"$peer" || {
		rm -f "$out/lib$peer.so"
		echo "$0: no $peer: it cannot be built on this machine" >&2
	}
done
