#!/usr/bin/env bash
# Builds the extensions that measure.py calls, to the folder build/bench/python: libcalls.so by package pyextension; and of others
# by_c, by_nanobind and by_pyo3, which are modules of Python, and libcgo.so, for ctypes. Prints the path of the interpreter for it.
#
#   bench/python/build.sh
#
# Needs Go, python3, gcc and g++, the headers of that Python for by_c and by_nanobind, and cargo for by_pyo3 (PYTHON, GO, CC, CXX
# and CARGO name others). requirements.txt, Cargo.lock and go.mod pin the others. What cannot be built is left out, and the
# benchmark goes on without it.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
out=$root/build/bench/python
mkdir -p "$out"
python=$("$root/ci/venv" "$here/requirements.txt")
headers=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
suffix=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')

by_go() { (cd "$root" && "${GO:-go}" build -buildmode=c-shared -trimpath -o "$out/lib$1.so" "./bench/python/$2") >&2; }

ours() { by_go calls ours; }
cgo() { by_go cgo cgo; }

c() {
	"${CC:-gcc}" -std=c11 -O2 -Wall -Wextra -Werror -fPIC -shared -isystem "$headers" -I"$root/cdevice/include" \
		"$here/c/calls.c" -o "$out/by_c$suffix"
}

# nanobind's own half takes a while, so once for each version of it and of Python.
nanobind() {
	local folder version object
	{ read -r folder; read -r version; } < <("$python" -c '
import nanobind, pathlib
print(pathlib.Path(nanobind.__file__).parent)
print(nanobind.__version__)')
	object=$out/nanobind-$version$suffix.o
	local compile=("${CXX:-g++}" -std=c++17 -O2 -DNDEBUG -fPIC -fvisibility=hidden -fno-strict-aliasing
		-isystem "$headers" -isystem "$folder/include" -isystem "$folder/ext/robin_map/include" -I"$root/cdevice/include")
	[[ -f $object ]] || "${compile[@]}" -c "$folder/src/nb_combined.cpp" -o "$object" || return 1
	"${compile[@]}" -Wall -Wextra -shared "$here/nanobind/calls.cc" "$object" -o "$out/by_nanobind$suffix"
}

pyo3() {
	command -v "${CARGO:-cargo}" >/dev/null || return 1
	PYO3_PYTHON=$python "${CARGO:-cargo}" build --quiet --release --locked --manifest-path "$here/rust/Cargo.toml" \
		--target-dir "$out/rust" >&2 || return 1
	cp "$out/rust/release/libby_pyo3.so" "$out/by_pyo3$suffix"
}

rm -f "$out"/by_* "$out"/lib*.so
for one in ours cgo c nanobind pyo3; do
	"$one" || echo "$0: no calls by $one: they cannot be built on this machine" >&2
done
printf '%s\n' "$python"
