#!/usr/bin/env bash
# The package gorgonia on the simulated CUDA driver, to which gorgonia.org/cu is linked.
#
#   memory/cudaalloc/gorgonia/test.sh [ARGUMENT...]   arguments go to go test
#
# Needs Go, gcc and python3 (PYTHON, GO and CC name others). The header cuda.h is that
# of the Python environment of integration/cuda/venv.sh.
#
# CDEVICE_CUDA_DRIVER=PATH runs the tests on that libcuda.so.1 instead.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
go=${GO:-go}
package=./memory/cudaalloc/gorgonia
build=$PWD/build/gorgonia

# The linker wants the name without a version, the loader the other one. Both, and
# CDEVICE_CUDA_DRIVER, are the same file: the loader takes it once, so that gorgonia
# and this module share one driver.
driver=${CDEVICE_CUDA_DRIVER:-$("$go" run ./cudasim/build)}
driver=$(realpath -e "$driver")
cuda=$("$(integration/cuda/venv.sh "$driver")" -c 'import nvidia.cuda_runtime as r; print(r.__path__[0])')
mkdir -p "$build/lib"
ln -sf "$driver" "$build/lib/libcuda.so"
ln -sf "$driver" "$build/lib/libcuda.so.1"
export CGO_ENABLED=1
# Quoted once more for cgo, which splits these at spaces.
export CGO_CFLAGS="${CGO_CFLAGS:--O2 -g} '-I$cuda/include'"
export CGO_LDFLAGS="${CGO_LDFLAGS:--O2 -g} '-L$build/lib'"
export LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

"$go" vet -tags gorgonia "$package"

# The simulator reads its options once per process. Go knows nothing of them, so
# results must not come from its cache.
# shellcheck disable=SC2054 # an option of the simulator has commas
machines=(
	''
	delay=200
	schedule=random,delay=100,seed=7,pageable_async=1,devices=2
	pools=0,delay=50
)
[[ -z ${CDEVICE_CUDA_DRIVER:-} ]] || machines=('')
export CDEVICE_CUDA_DRIVER=$driver
for CUDASIM in "${machines[@]}"; do
	export CUDASIM
	echo "CUDASIM=$CUDASIM"
	"$go" test -tags gorgonia -count=1 -shuffle=on "$@" "$package"
done
