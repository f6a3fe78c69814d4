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


def version_of(distribution):
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def note(name, module):
    """What decides whether its memory can be a GPU's."""
    if name == "pyarrow":
        try:
            importlib.import_module("pyarrow.cuda")
            return "with pyarrow.cuda"
        except ImportError:
            return "without pyarrow.cuda: on the CPU"
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
    version = str(getattr(module, "__version__", "") or version_of(name))
    say(result={"state": "ok", "version": version, "note": note(name, module)})


main(sys.argv[1])
out.flush()
os._exit(0)  # what libraries do at exit does not matter here
