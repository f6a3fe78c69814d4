"""Imports one library and prints what it is, as lines of JSON. Run with its name as the argument; "" for the interpreter alone."""

import importlib
import importlib.metadata
import json
import os
import sys

sys.path[:] = [p for p in sys.path if p]  # the current folder may have files with the names of libraries
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # libraries print as well


def say(**message):
    out.write(json.dumps(message) + "\n")
    out.flush()


# By protocol, the attributes that show it: module:Class.method. One of them is enough.
PEERS = {
    "pyarrow": {
        "gives": {
            "device arrays": ["pyarrow:RecordBatch.__arrow_c_device_array__"],
            "arrays": ["pyarrow:RecordBatch.__arrow_c_array__"],
            "streams": ["pyarrow:Table.__arrow_c_stream__"],
            "DLPack": ["pyarrow:Array.__dlpack__"],
        },
        "takes": {
            "device arrays": ["pyarrow:RecordBatch._import_from_c_device_capsule", "pyarrow:RecordBatch._import_from_c_device"],
            "arrays": ["pyarrow:RecordBatch._import_from_c_capsule"],
            "streams": ["pyarrow:RecordBatchReader.from_stream"],
            "DLPack": ["pyarrow:Array.from_dlpack"],
        },
    },
    "cudf": {
        "gives": {"CUDA Array Interface": ["cudf:Series.__cuda_array_interface__"]},
        "takes": {"CUDA Array Interface": ["cudf:Series"]},
    },
    "pylibcudf": {
        "gives": {
            "device arrays": ["pylibcudf:Table.__arrow_c_device_array__", "pylibcudf:Column.__arrow_c_device_array__"],
            "CUDA Array Interface": ["pylibcudf:gpumemoryview.__cuda_array_interface__"],
        },
        "takes": {
            "device arrays": ["pylibcudf:Table.from_arrow"],
            "CUDA Array Interface": ["pylibcudf:Column.from_cuda_array_interface", "pylibcudf:Column.from_cuda_array_interface_obj"],
        },
    },
    "rmm": {"gives": {"CUDA Array Interface": ["rmm:DeviceBuffer.__cuda_array_interface__"]}, "takes": {}},
    "cupy": {
        "gives": {"DLPack": ["cupy:ndarray.__dlpack__"], "CUDA Array Interface": ["cupy:ndarray.__cuda_array_interface__"]},
        "takes": {"DLPack": ["cupy:from_dlpack"], "CUDA Array Interface": ["cupy:asarray"]},
    },
    "torch": {
        "gives": {"DLPack": ["torch:Tensor.__dlpack__"], "CUDA Array Interface": ["torch:Tensor.__cuda_array_interface__"]},
        "takes": {"DLPack": ["torch:from_dlpack"], "CUDA Array Interface": ["torch:as_tensor"]},
    },
    "jax": {
        "gives": {"DLPack": ["jax:Array.__dlpack__", "jax._src.array:ArrayImpl.__dlpack__"]},
        "takes": {"DLPack": ["jax.dlpack:from_dlpack"]},
    },
    "numba": {
        "gives": {"CUDA Array Interface": ["numba.cuda.cudadrv.devicearray:DeviceNDArray.__cuda_array_interface__"]},
        "takes": {"CUDA Array Interface": ["numba.cuda:as_cuda_array"]},
    },
    "cuda.core": {
        "gives": {"DLPack": ["cuda.core:Buffer.__dlpack__", "cuda.core.experimental:Buffer.__dlpack__"]},
        "takes": {
            "DLPack": ["cuda.core.utils:StridedMemoryView", "cuda.core.experimental.utils:StridedMemoryView"],
            "CUDA Array Interface": ["cuda.core.utils:StridedMemoryView", "cuda.core.experimental.utils:StridedMemoryView"],
        },
    },
    "nanoarrow": {
        "gives": {
            "device arrays": ["nanoarrow.device:CDeviceArray.__arrow_c_device_array__"],
            "arrays": ["nanoarrow:Array.__arrow_c_array__", "nanoarrow.c_lib:CArray.__arrow_c_array__"],
            "streams": ["nanoarrow:ArrayStream.__arrow_c_stream__"],
        },
        "takes": {
            "device arrays": ["nanoarrow.device:c_device_array"],
            "arrays": ["nanoarrow:c_array"],
            "streams": ["nanoarrow:c_array_stream"],
        },
    },
    # Versions that give streams take them, and arrays.
    "polars": {
        "gives": {"streams": ["polars:DataFrame.__arrow_c_stream__"]},
        "takes": {"arrays": ["polars:DataFrame.__arrow_c_stream__"], "streams": ["polars:DataFrame.__arrow_c_stream__"]},
    },
    "duckdb": {
        "gives": {"streams": ["duckdb:DuckDBPyRelation.__arrow_c_stream__"]},
        "takes": {"arrays": ["duckdb:DuckDBPyRelation.__arrow_c_stream__"], "streams": ["duckdb:DuckDBPyRelation.__arrow_c_stream__"]},
    },
    "pandas": {
        "gives": {"streams": ["pandas:DataFrame.__arrow_c_stream__"]},
        "takes": {"arrays": ["pandas:DataFrame.from_arrow"], "streams": ["pandas:DataFrame.from_arrow"]},
    },
    "numpy": {"gives": {"DLPack": ["numpy:ndarray.__dlpack__"]}, "takes": {"DLPack": ["numpy:from_dlpack"]}},
}


def has(place):
    module, _, path = place.partition(":")
    try:
        found = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
        return True
    except Exception:  # another version
        return False


def protocols(of):
    return [name for name, places in of.items() if any(has(p) for p in places)]


def version_of(distribution):
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def note(name, module):
    """What decides whether its memory can be a GPU's."""
    if name == "pyarrow":
        return "with pyarrow.cuda" if has("pyarrow.cuda:Context") else "without pyarrow.cuda: on the CPU"
    if name == "torch":
        cuda = getattr(module.version, "cuda", None)
        hip = getattr(module.version, "hip", None)
        return f"built for CUDA {cuda}" if cuda else f"built for ROCm {hip}" if hip else "built without CUDA: on the CPU"
    if name == "jax":
        installed = {(d.metadata["Name"] or "").lower() for d in importlib.metadata.distributions()}
        plugins = sorted(n for n in installed if n.startswith("jax-cuda") and n.endswith("-plugin"))
        return " ".join(plugins) or "without a CUDA plugin: on the CPU"
    if name == "numba":
        own = version_of("numba-cuda")
        return f"numba-cuda {own}" if own else "its built-in CUDA target"
    if name in ("numpy", "polars", "duckdb", "pandas"):
        return "on the CPU"
    return ""


def main(name):
    if not name:
        say(result={"version": ".".join(map(str, sys.version_info[:3])), "path": sys.executable})
        return
    say(step="import")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        absent = error.name and (name == error.name or name.startswith(error.name + "."))
        say(result={"state": "absent"} if absent else {"state": "error", "error": f"ModuleNotFoundError: {error}"})
        return
    except BaseException as error:
        say(result={"state": "error", "error": f"{type(error).__name__}: {error}"})
        return
    say(step="look")
    peer = PEERS[name]
    version = str(getattr(module, "__version__", "") or version_of(name))
    say(result={"state": "ok", "version": version, "gives": protocols(peer["gives"]), "takes": protocols(peer["takes"]), "note": note(name, module)})


main(sys.argv[1])
out.flush()
os._exit(0)  # what libraries do at exit does not matter here
