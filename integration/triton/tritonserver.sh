#!/usr/bin/env bash
# tritonserver.sh VENV: unpacks a Triton Inference Server 2.51.0 (24.10) with its Python backend into a new Python
# environment, for ci/venv. It runs without a GPU and without a driver.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=$1
read -r version libpython < <("$venv/bin/python" -c '
import sysconfig
print(sysconfig.get_python_version(), "{LIBDIR}/{INSTSONAME}".format_map(sysconfig.get_config_vars()))')
# The backend runs its models in a program that is linked to the library of the interpreter.
[[ -f $libpython ]] || "$here/../../ci/apt" "libpython$version"

cd "$venv"
bin/python -m pip download --quiet --no-input --disable-pip-version-check --no-deps --only-binary :all: \
	--dest wheel nvidia-pytriton==0.7.0
bin/python -m zipfile --extract wheel/*.whl wheel
mkdir -p triton/backends
mv wheel/pytriton/tritonserver/bin/tritonserver wheel/nvidia_pytriton.libs triton
mv wheel/pytriton/tritonserver/backends/python triton/backends
mv "wheel/pytriton/tritonserver/python_backend_stubs/$version/triton_python_backend_stub" triton/backends/python
rm -r wheel
chmod +x triton/tritonserver triton/backends/python/triton_python_backend_stub
ln -s "$(dirname "$libpython")" triton/libpython
