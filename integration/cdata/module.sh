#!/usr/bin/env bash
# Makes build/cdata a Go module with programs and tests of arrow-go's, over package cdata of this module. Prints its path.
#
#   over/      arrow-go's own tests of its package cdata, with over.go here in place of the package
#   pyarrow/   its library for its tests against PyArrow
#   archery/   its library for the C data integration tests
#
# The files are those of the version that go.mod names. They change in two lines at most: build constraints go, and of a
# program the import of cdata is ours. The module has a path below arrow-go's, so that it may import internal packages.
#
#   integration/cdata/module.sh      GO names another Go
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$(dirname "$here")")
module=$root/build/cdata
cd "$root"
mkdir -p "$module"
exec {lock}>"$module.lock"
flock "$lock"

arrow=github.com/apache/arrow-go/v18
ours=github.com/arrowdevice/arrowdevice
# Downloads it where it is not yet.
from=$("${GO:-go}" list -f '{{.Dir}}' "$arrow/arrow")

# written FILE: writes standard input, if it is not there yet: another suite may be building the module.
written() {
	mkdir -p "$(dirname "$module/$1")"
	cat >"$module/new"
	cmp -s "$module/new" "$module/$1" || mv "$module/new" "$module/$1"
}

# copied FOLDER FILE...: the files with the two changes.
copied() {
	local file
	for file in "${@:2}"; do
		sed -e '/^\/\/go:build /d' -e '/^\/\/ +build /d' -e "s|\"$arrow/arrow/cdata\"|\"$ours/cdata\"|" "$file" |
			written "$1/${file##*/}"
	done
}

{
	sed "1s|.*|module $arrow/arrow/arrowdevice|" go.mod
	printf '\nrequire %s v0.0.0\n\nreplace %s => ../..\n' "$ours" "$ours"
} | written go.mod
written go.sum <"$root/go.sum"
copied over "$from"/cdata/{abi.h,helpers.h,utils.h,cdata_fulltest.c,cdata_test.go,cdata_test_framework.go} "$here"/over{,_test}.go
copied pyarrow "$from"/cdata/test/{test_cimport.go,test_export_to_cgo.py}
copied archery "$from"/internal/cdata_integration/entrypoints.go
if grep -L "\"$ours/cdata\"" "$module/pyarrow/test_cimport.go" "$module/archery/entrypoints.go" | grep .; then
	echo "$0: these do not import cdata" >&2
	exit 1
fi
rm -f "$module/new"
printf '%s\n' "$module"
