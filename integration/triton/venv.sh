#!/usr/bin/env bash
# Makes a Python environment in integration/triton/.venv with the packages that
# requirements.txt pins, again when that file or the interpreter changes, and prints
# the path of its interpreter. PYTHON names another python3.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=$here/.venv

# The stamp is written last, so that an installation that broke off is redone.
wanted=$("${PYTHON:-python3}" -VV && cat "$here/requirements.txt")
if [[ ! -f $venv/stamp || $(<"$venv/stamp") != "$wanted" ]]; then
	rm -rf "$venv"
	"${PYTHON:-python3}" -m venv "$venv"
	"$venv/bin/python" -m pip install --quiet --no-input --disable-pip-version-check \
		--only-binary :all: --requirement "$here/requirements.txt" >&2
	printf '%s\n' "$wanted" >"$venv/stamp"
fi
printf '%s\n' "$venv/bin/python"
