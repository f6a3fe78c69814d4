"""Runs functions of a library in Go while each allocation of the library's C fails, one after the other."""

import asyncio
import ctypes
import errno
import functools
import gc
import sys
import time

path = sys.argv[1]
c = ctypes.CDLL(path)
c.callocfail_arm.argtypes = [ctypes.c_int64, ctypes.c_int64]
c.callocfail_disarm.restype = ctypes.c_int64

import arrowdevice  # noqa: E402


def failing(number, always, operation):
    """Returns the result, or the exception, and how many allocations have failed."""
    c.callocfail_arm(number, always)
    try:
        result = operation()
    except BaseException as e:
        # Of its frames: they hold what the operation has made.
        result = e.with_traceback(None)
        result.__context__ = result.__cause__ = None
    return result, c.callocfail_disarm()


def is_out_of_memory(error):
    # DLPack's exceptions are BufferErrors.
    return isinstance(error, MemoryError) or getattr(error, "errno", 0) == errno.ENOMEM or "cannot allocate memory" in str(error)


def only(of, *methods):
    """An object of another library, with some methods of an object."""

    def forward(method):
        return lambda _, *arguments, **named: getattr(of, method)(*arguments, **named)

    return type("Only", (), {method: forward(method) for method in methods})()


def each_fails(name, operation, want, least=1):
    assert operation() == want, name
    gc.collect()
    alive, live = go.alive(), go.live()
    for always in False, True:
        number = 1
        while True:
            result, failed = failing(number, always, operation)
            if not failed:
                assert result == want, (name, number, result)
                break
            if isinstance(result, BaseException):
                assert is_out_of_memory(result), (name, number, always, repr(result))
            else:
                assert result == want and not always, (name, number, always, result)
            result = None
            gc.collect()
            assert operation() == want, (name, number)
            number += 1
        assert number > least, f"{name}: {number - 1} allocations"
        print(f"{name}: {number - 1} allocations")
    deadline = time.monotonic() + 20
    while go.alive() != alive or go.live() > live:  # some end on threads of Go
        gc.collect()
        assert time.monotonic() < deadline, (name, alive, go.alive(), live, go.live())


def define_fails():
    """Functions that are defined live as long as the process: this is about those that could not be."""
    parameters = [("a", "dict[str, list[float | None]]"), ("b", "RecordBatch | None"), ("c", "int")]
    number = failed = 1
    while failed:
        live = go.live()
        result, failed = failing(number, 0, lambda: go._library.module.function("f", parameters))
        if failed:
            assert isinstance(result, MemoryError), (number, result)
            assert go.live() == live, (number, live, go.live())
            number += 1
    assert callable(result), result
    assert number > 10
    print(f"a definition: {number - 1} allocations")


def each_of(method):
    """What a method of a protocol gives: as an argument, and dropped."""
    for make, take, want in (go.batch, go.of_batch, 6), (go.array, go.of_array, 6), (go.stream, go.of_stream, 12):
        if not hasattr(make(), method):
            continue
        name = f"{make.__name__} by {method}"
        each_fails(name, functools.partial(lambda make, take: take(only(make(), method)), make, take), want)
        each_fails(f"{name}, dropped", functools.partial(lambda make: getattr(make(), method)() is None, make), False)
        each_fails(f"{name}, any", functools.partial(lambda make: go.of_any([only(make(), method)]), make), 1)


def main():
    define_fails()
    each_fails("a result", lambda: go.of_batch(go.batch()), 6)
    each_fails("a list of values", lambda: go.of_texts(["text" * 10] * 100, {"a": 1.0, "b": None}), 4002)
    each_fails("a long text", lambda: go.echo("text" * 1000), "text" * 1000)
    for method in "__arrow_c_device_array__", "__arrow_c_array__", "__arrow_c_device_stream__", "__arrow_c_stream__":
        each_of(method)
    each_fails("a schema", lambda: go.of_schema(only(go.schema(), "__arrow_c_schema__")), 1)
    each_fails("a tensor", lambda: go.of_array(only(go.array(), "__dlpack__", "__dlpack_device__")), 6)
    each_fails("an iterable", lambda: go.of_stream(go.batch() for _ in range(3)), 18)
    each_fails("an iterable of others", lambda: go.of_stream(only(go.batch(), "__arrow_c_array__") for _ in range(3)), 18)
    each_fails("an awaited call", lambda: asyncio.run(go.of_batch.aio(go.batch())), 6)


def load_fails(number):
    """Loads the library while an allocation fails, and again. Reports whether there was such an allocation."""
    global go
    go, failed = failing(number, 0, lambda: arrowdevice.load(path))
    if failed:
        assert is_out_of_memory(go), repr(go)
        go = arrowdevice.load(path)
    assert go.of_batch(go.batch()) == 6
    return failed


if len(sys.argv) == 2:
    go = arrowdevice.load(path)
    main()
elif not load_fails(int(sys.argv[2])):
    print("all allocations succeed")
