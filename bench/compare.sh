#!/usr/bin/env bash
# Measures the library of another revision beside the one that is checked out, with the benchmark of
# this tree, and compares them with benchstat.
#
#   bench/compare.sh REVISION [ARGUMENT...]   arguments go to the benchmark, such as -only import
#
# The two programs run in turns, three times each, so that other load of the machine affects both.
# The peers are left out, unless an argument -peer names some.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
go=${GO:-go}
revision=$1
shift
out=$root/build/bench
mkdir -p "$out"

tree=$(mktemp -d)
cleanup() {
	git -C "$root" worktree remove --force "$tree" || true
}
trap cleanup EXIT
git -C "$root" worktree add --quiet --detach "$tree" "$revision"
# The program of this tree, so that both are measured alike.
rm -rf "$tree/bench"
mkdir -p "$tree/bench"
cp -r "$here"/*.go "$here"/peers "$here"/plot "$tree/bench/"
(cd "$tree" && "$go" build -o "$out/base" ./bench)
(cd "$root" && "$go" build -o "$out/here" ./bench)

rm -f "$out/base.txt" "$out/here.txt"
for _ in 1 2 3; do
	for side in base here; do
		(cd "$root" && "$out/$side" -peer '^$' -rounds 5 "$@" -text "$out/$side.txt" >/dev/null)
	done
done
cd "$root"
"$go" tool -modfile=ci/tools/go.mod benchstat "$revision=$out/base.txt" "here=$out/here.txt"
