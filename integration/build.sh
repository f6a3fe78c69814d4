#!/usr/bin/env bash
# Builds the Go library that the tests in Python load, build/libgolib.so, once for all suites that run at the same time.
#
# Needs Go and gcc (GO and CC name others).
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p build
exec {lock}>build/golib.lock
flock --nonblock "$lock" || ci/progress "Another process builds the Go library" flock "$lock"
ci/progress "Go library of the tests" ci/gobuild -buildmode=c-shared -trimpath -ldflags=-w -o build/libgolib.so ./integration/golib
