"""Subinterpreters. A library is refused there; its streams and arrays may be called there by their addresses, and run Python
code in the main interpreter, to which it belongs. Each test runs a program in a process of its own."""

import sys

import pytest

import extension
from processes import FINDS, ended, run


def test_subinterpreters_are_refused(tmp_path):
    """ctypes runs callbacks of foreign threads in the main interpreter, whose objects are others."""
    inner = tmp_path / "inner.py"
    inner.write_text(
        f"{FINDS}try:\n    import arrowdevice\n    arrowdevice.load({extension.PATH!r})\nexcept ImportError as e:\n    print(e, flush=True)\n"
    )
    program = f"""
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    import pathlib
    made = interpreters.create()
    run = getattr(interpreters, "exec", None) or interpreters.run_string
    run(made, pathlib.Path({str(inner)!r}).read_text())
    interpreters.destroy(made)
    print(ext.add(1, 2))
    """
    refused, works = run(program, tmp_path)
    assert refused.endswith("cannot be loaded in a subinterpreter") or "does not support loading in subinterpreters" in refused
    assert works == "3"


def test_library_after_a_subinterpreter_was_refused(tmp_path):
    """Nothing of that interpreter is kept."""
    load = f"import arrowdevice\next = arrowdevice.load({extension.PATH!r})\n"
    inner = tmp_path / "inner.py"
    inner.write_text(f"{FINDS}try:\n    exec({load!r})\nexcept ImportError:\n    print('refused', flush=True)\n")
    program = f"""
    import pathlib
    try:
        import _testcapi
    except ImportError:  # this Python cannot make one with the same lock
        print("refused", flush=True)
    else:
        _testcapi.run_in_subinterp(pathlib.Path({str(inner)!r}).read_text())
    exec({load!r})
    print(ext.add(1, 2))
    """
    assert ended(program, tmp_path, head=FINDS) == (0, "refused\n3\n", "")


CALLS_BY_ADDRESS = """
import ctypes

class Stream(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("get_schema", "get_next", "get_last_error", "release", "private_data")]

class Array(ctypes.Structure):
    _fields_ = [("parts", ctypes.c_int64 * 8), ("release", ctypes.c_void_p), ("private_data", ctypes.c_void_p)]

def call(function, result, *addresses):
    return ctypes.{calls}(result, *[ctypes.c_void_p] * len(addresses))(function)(*addresses)

def release(array):
    call(array.release, None, ctypes.addressof(array))

stream, batches, code = Stream.from_address({stream}), 0, 0
while code == 0:
    array = Array()
    code = call(stream.get_next, ctypes.c_int, {stream}, ctypes.addressof(array))
    if array.release:
        batches += 1
        release(array)
print(batches, call(stream.get_last_error, ctypes.c_char_p, {stream}).decode())
call(stream.release, None, {stream})
release(Array.from_address({array}))
"""


@pytest.mark.parametrize("calls", ["CFUNCTYPE", "PYFUNCTYPE"])  # without the lock of the interpreter, and with it
@pytest.mark.parametrize("thread", ["main", "another"])
def test_streams_that_a_subinterpreter_calls(thread, calls, tmp_path):
    if sys.version_info < (3, 12) and calls == "PYFUNCTYPE":
        pytest.skip("PyGILState_Ensure of this Python waits for the lock that the thread holds by another thread state")
    program = f"""
    import ctypes, gc, numpy, threading, time
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters

    run_by, MAIN = [], interpreters.get_current()

    class Noting(numpy.ndarray):
        def __del__(self):
            run_by.append(interpreters.get_current())

    def noting():
        return numpy.arange(3).view(Noting)

    def batches():
        for _ in range(100):
            run_by.append(interpreters.get_current())
            made = noting()
            memory = pa.foreign_buffer(made.ctypes.data, made.nbytes, made)
            yield pa.record_batch([pa.Array.from_buffers(pa.int64(), 3, [None, memory])], ["a"])
        raise ValueError("the end")

    def address(capsule, name):
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        return get(capsule, name)

    def work():
        stream = ext.echo_reader(batches()).__arrow_c_stream__()
        schema, array = ext.echo_array(noting()).__arrow_c_array__()
        run = getattr(interpreters, "exec", None) or interpreters.run_string
        inner = {CALLS_BY_ADDRESS!r}.format(
            calls={calls!r}, stream=address(stream, b"arrow_array_stream"), array=address(array, b"arrow_array")
        )
        made = interpreters.create()
        print(run(made, inner))
        interpreters.destroy(made)

    if {thread!r} == "main":
        work()
    else:
        thread = threading.Thread(target=work)
        thread.start()
        while thread.is_alive():
            kept = [object() for _ in range(1000)]
            time.sleep(0)  # before Python 3.12 the lock is not taken from the main interpreter by another one
    deadline = time.monotonic() + 60
    while any(ext._library.ask(".stats").values()) and time.monotonic() < deadline:
        gc.collect()
    print(set(run_by) == {{MAIN}}, len(run_by), ext._library.module.sources())
    """
    status, out, err = ended(program, tmp_path, "-X", "faulthandler")
    if "loading in subinterpreters" in out + err:
        pytest.skip("ctypes of this Python cannot be imported in a subinterpreter with a lock of its own")
    expected = "100 ValueError: the end\nNone\nTrue 201 0\n"
    assert (status, out, err) == (0, expected, "")


def test_streams_that_are_read_beside_a_subinterpreter(tmp_path):
    """PyArrow reads them without Python's lock, which another thread holds: it stays that thread's."""
    program = """
    import threading
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters

    made, reading = interpreters.create(), True

    def work():
        while reading:
            kept = {str(i): [i] for i in range(100)}

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    print(sum(pa.table(ext.counters(1, 1000)).num_rows for _ in range(10)))
    reading = False
    for thread in threads:
        thread.join()
    interpreters.destroy(made)
    """
    assert run(program, tmp_path) == ["10000"]
