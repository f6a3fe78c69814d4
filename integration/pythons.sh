#!/usr/bin/env bash
# The tests of run.sh in versions of Python: in those that the package claims (python/pyproject.toml) but python3's own,
# or in one. Those that ci/python cannot find are failures.
#
#   integration/pythons.sh [VERSION [ARGUMENT...]]   arguments go to pytest
#
# Needs what run.sh and ci/python need.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
if (($#)); then
	versions=("$1")
	shift
else
	own=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
	mapfile -t versions < <(grep -oP '"Programming Language :: Python :: \K3\.\d+' python/pyproject.toml | grep -vFx "$own")
fi

failed=()
for version in "${versions[@]}"; do
	echo "Python $version"
	{ python=$(ci/python "$version") && "$python" -VV && PYTHON=$python integration/run.sh "$@"; } || failed+=("$version")
done
((${#failed[@]} == 0)) || { echo "$0: failed in ${failed[*]}" >&2; exit 1; }
