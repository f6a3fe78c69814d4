#!/usr/bin/env bash
# arrow-go's own tests of its package cdata, over package cdata of this module: those in Go, and those against PyArrow.
#
#   integration/cdata/run.sh [FLAG...]   flags of `go test -c`, such as -race: then only the tests in Go run
#
# Needs Go, gcc and python3 (GO and PYTHON name others). module.sh has the files, which are those of arrow-go's module.
set -euo pipefail

# What is left out: a test, or one of its subtests, and why.
left_out=(
	TestExportRecordReaderStream "it reads what arrow-go's package keeps behind private_data"
	TestDecimalSchemaErrors "it asks for arrow-go's words; the same formats are refused in others"
	TestImportSchemaRejectsInvalidFixedSizeBinaryWidths/w:0 "a width of 0 is valid: Arrow C++ and pyarrow.binary(0) have it"
	TestImportSchemaRejectsInvalidNestedFormats/+w:0 "a size of 0 is valid, but arrow-go has no such type: ErrNotImplemented"
)

go=${GO:-go}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$("$here/module.sh")"

# pattern NAME: matches a test or subtest alone.
pattern() {
	local slash='\E$/^\Q'
	printf '^\\Q%s\\E$' "${1//\//$slash}"
}

skip=
for ((i = 0; i < ${#left_out[@]}; i += 2)); do
	skip+=${skip:+|}$(pattern "${left_out[i]}")
done

"$go" test -c "$@" -o over.test ./over
cd over
../over.test -test.v -test.timeout 5m -test.skip "$skip" &>../over.log || {
	cat ../over.log
	exit 1
}
echo "$(grep -c '^--- PASS' ../over.log) tests in Go pass. Left out:"
for ((i = 0; i < ${#left_out[@]}; i += 2)); do
	echo "  ${left_out[i]}: ${left_out[i + 1]}"
	if ../over.test -test.timeout 1m -test.run "$(pattern "${left_out[i]}")" &>../over.log; then
		echo "$0: ${left_out[i]} passes, or there is no such test any more: drop its row" >&2
		exit 1
	fi
done

if (($# == 0)); then
	cd ../pyarrow
	"$go" build -buildmode=c-shared -ldflags=-w -o cgotest.so .
	python=$("$here/../../ci/venv" "$here/requirements.txt")
	"$python" test_export_to_cgo.py
fi
