#!/usr/bin/env bash
# Builds Go libraries that the tests in Python load, to build/lib<name>.so, once for all suites that run at the same time.
#
#   integration/build.sh [golib] [testextension]
#
# Needs Go and gcc (GO and CC name others).
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p build
exec {lock}>build/libraries.lock
flock "$lock"
for name in "$@"; do
	folder=${name/testextension/pyextension}
	"${GO:-go}" build -buildmode=c-shared -trimpath -ldflags=-w -o "build/lib$name.so" "./integration/$folder"
done
