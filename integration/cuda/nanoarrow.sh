#!/usr/bin/env bash
# nanoarrow.sh VENV DRIVER: builds nanoarrow with CUDA in a new Python environment, for ci/venv.
set -euo pipefail

venv=$1 driver=$2
nanoarrow=0.6.0

pip() {
	"$venv/bin/python" -m pip "$1" --quiet --no-input --disable-pip-version-check "${@:2}"
}

# The linker asks for the name without a version; which driver it finds does
# not matter, as the programs load the one to test before nanoarrow is imported.
mkdir "$venv/link"
ln -s "$driver" "$venv/link/libcuda.so"
include=$("$venv/bin/python" -c '
import importlib.util as find
print(next(find.find_spec(name).submodule_search_locations[0] for name in ("nvidia.cuda_runtime", "nvidia.cu13") if find.find_spec(name)))')
# No cache: it may hold a nanoarrow that was built without CUDA.
# LIBRARY_PATH and not LDFLAGS=-L, which setuptools splits at the spaces of a path.
# -O0: a third of the time; nothing here is measured.
CFLAGS=-O0 NANOARROW_PYTHON_CUDA_HOME=$include LIBRARY_PATH=$venv/link${LIBRARY_PATH:+:$LIBRARY_PATH} \
	pip wheel --no-deps --no-build-isolation --no-cache-dir --no-binary nanoarrow \
	--wheel-dir "$venv/wheels" "nanoarrow==$nanoarrow"
pip install --no-deps --no-index "$venv/wheels/nanoarrow-$nanoarrow"-*.whl
