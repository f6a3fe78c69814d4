"""The control interface of the simulated CUDA driver: see cudasim/src/cudasim.h.

Importing this module loads the driver under test, the simulator or another one. Code
that loads a libcuda.so.1 in this process afterwards gets the same copy: the dynamic
linker knows it by that name, and nanoarrow is linked to it.
"""

import contextlib
import ctypes
import json
import os

PATH = os.environ["NUMBA_CUDA_DRIVER"]  # run.sh names it, and Numba reads it too

library = ctypes.CDLL(PATH)

is_simulator = hasattr(library, "cudasim_report")

WHY_NOT = f"the driver is {PATH}, as CDEVICE_CUDA_DRIVER says, and this test needs the simulator"

if is_simulator:
    library.cudasim_fail.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_int]
    library.cudasim_fail.restype = None
    library.cudasim_failed.argtypes = [ctypes.POINTER(ctypes.c_char_p)]
    library.cudasim_report.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    library.cudasim_report.restype = ctypes.c_size_t


def options(*parts):
    """Options for the environment variable CUDASIM."""
    return ",".join(part for part in parts if part)


def report():
    """Everything that is counted."""
    size = library.cudasim_report(None, 0)
    while True:
        text = ctypes.create_string_buffer(size)
        needed = library.cudasim_report(text, size)
        if needed <= size:
            return json.loads(text.value)
        size = needed


class Counted:
    """How much the numbers in a report grew: counted.bytes["htod"], counted.calls.get("cuMemAlloc", 0)."""

    def __init__(self, before, after):
        for name, value in after.items():
            if isinstance(value, dict) and name != "live":
                value = {key: n - before[name].get(key, 0) for key, n in value.items()}
                value = {key: n for key, n in value.items() if n or name == "bytes"}
            elif isinstance(value, int):
                value -= before[name]
            setattr(self, name, value)


@contextlib.contextmanager
def counting():
    """Yields a function that returns the Counted calls since."""
    before = report()
    yield lambda: Counted(before, report())


@contextlib.contextmanager
def failing(function, result, k=1):
    """The k-th call of a function answers a result, and this call must come."""
    library.cudasim_fail(function.encode(), k, result)
    try:
        yield
        name = ctypes.c_char_p()
        assert library.cudasim_failed(ctypes.byref(name)), f"{function} was not called {k} times"
        assert name.value.decode() == function
    finally:
        library.cudasim_fail(None, 0, 0)
