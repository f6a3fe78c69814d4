#!/usr/bin/env bash
# The tests of pyextension in the versions of Python that the package claims (python/pyproject.toml) but python3's own, or
# those of run.sh in one version. A version that ci/python cannot find is a failure.
#
#   integration/pythons.sh [VERSION [ARGUMENT...]]   arguments go to pytest: interop peer, and so on; without them pyextension
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
(($#)) || set -- pyextension

failed=()
for version in "${versions[@]}"; do
	echo "Python $version"
	{ python=$(ci/python "$version") && "$python" -VV && PYTHON=$python integration/run.sh "$@"; } || failed+=("$version")
done
((${#failed[@]} == 0)) || { echo "$0: failed in ${failed[*]}" >&2; exit 1; }
