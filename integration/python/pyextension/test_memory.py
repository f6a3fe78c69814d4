"""Memory of C and Python: what a call takes, it gives back. Go's counts say nothing of it."""

import asyncio
import ctypes
import gc
import sys

import numpy
import pyarrow as pa
import pytest

BATCH = pa.record_batch({"a": [1, 2], "b": [3, 4]})
CALLS = 200
LIMITS = 16, 0.5, 0.5  # for each call, half of the least that can be lost


class _Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]


try:
    _mallinfo2 = ctypes.CDLL(None).mallinfo2
    _mallinfo2.restype = _Mallinfo2
except AttributeError:
    pytest.skip("only glibc says how much of its memory is in use", allow_module_level=True)


def in_use():
    """Bytes that malloc has given out, blocks that Python has for its objects, and references to some of these."""
    gc.collect()
    return _mallinfo2().uordblks, sys.getallocatedblocks(), sum(map(sys.getrefcount, (Boom, None, True, False)))


class Boom(Exception):
    pass


def failing():
    yield BATCH
    raise Boom


def failing_end():
    try:
        yield BATCH
        yield BATCH
    finally:
        raise Boom


def left(ext, source):
    with ext.echo_reader(source) as made:
        next(made)


def fails(call, *arguments):
    try:
        call(*arguments)
    except Exception:
        return
    raise AssertionError("no error")


class Producer:
    """An object whose protocol is a function of the test."""

    def __init__(self, method, function):
        setattr(self, method, function)


def boom(*_, **__):
    raise Boom


def consumed():
    capsules = BATCH.__arrow_c_array__()
    pa.RecordBatch._import_from_c_capsule(*capsules)
    return capsules


class Iterable:
    def __init__(self, make):
        self._make = make

    def __iter__(self):
        return self._make()


def changed():
    """A list that an element makes shorter."""
    values = [Producer("__index__", None), 1, 2, 3]
    type(values[0]).__index__ = lambda self: values.pop() * 0
    return values


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


async def cancelled(ext):
    task = asyncio.ensure_future(ext.sleep.aio(60_000))
    await asyncio.sleep(0)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        pass


async def awaited(ext):
    assert await ext.echo_texts.aio(["a", "b"]) == ["a", "b"]
    return [batch async for batch in ext.counters(1, 2)]


LOOP = asyncio.new_event_loop()
GRID = numpy.arange(12.0).reshape(3, 4)
VALUES = [1, -(1 << 62), (1 << 64) - 1, 2.5, "text", b"bytes", bytearray(b"more"), memoryview(b"of it"), True, None, {"a": [1], "b": {"c": ()}}]
REFUSED = {
    "a wrong type": lambda ext, made: ext.add("x"),
    "an int that is too large": lambda ext, made: ext.add(1 << 70),
    "a text that is not UTF-8": lambda ext, made: ext.echo(["a", "\udc80"]),
    "a key that is no str": lambda ext, made: ext.echo({"a": BATCH, 1: 2}),
    "a list that is too deep": lambda ext, made: ext.echo(nested(300)),
    "a list that changes": lambda ext, made: ext.echo(changed()),
    "an object of no kind": lambda ext, made: ext.echo([BATCH, object()]),
    "a class": lambda ext, made: ext.echo_batch(pa.RecordBatch),
    "a protocol that raises": lambda ext, made: ext.echo_batch(Producer("__arrow_c_array__", boom)),
    "a protocol that returns no pair": lambda ext, made: ext.echo_batch(Producer("__arrow_c_array__", lambda: 5)),
    "a capsule of another kind": lambda ext, made: ext.echo_batch(Producer("__arrow_c_array__", BATCH.__arrow_c_device_array__)),
    "a capsule that is empty": lambda ext, made: ext.echo_batch(Producer("__arrow_c_array__", consumed)),
    "a tensor that raises": lambda ext, made: ext.echo_array(Producer("__dlpack__", boom)),
    "an interface that is no dict": lambda ext, made: ext.echo_array(Producer("__cuda_array_interface__", 5)),
    "an interface without memory": lambda ext, made: ext.echo_array(Producer("__cuda_array_interface__", {"shape": (1,), "mask": None})),
    "objects of NumPy": lambda ext, made: ext.echo_array(numpy.array([object()])),
    "an iterator that raises": lambda ext, made: ext.count(Iterable(boom)),
    "an iterable without items": lambda ext, made: ext.count([]),
    "an item of no kind": lambda ext, made: ext.count([BATCH, 5]),
    "an item of another schema": lambda ext, made: ext.count([BATCH, BATCH.select(["a"])]),
    "an argument behind a source": lambda ext, made: ext.read_two(iter([BATCH]), object()),
    "an argument that Go refuses": lambda ext, made: ext.echo_two(iter([BATCH]), made["a"]),
    "an error": lambda ext, made: ext.fail("absent"),
    "a panic": lambda ext, made: ext.panics(),
    "an index out of range": lambda ext, made: made[7],
    "a schema that is not the requested one": lambda ext, made: made.__arrow_c_array__(requested_schema=pa.schema([]).__arrow_c_schema__()),
    "an object that is closed": lambda ext, made: [b.close() or ext.echo_batch(b) for b in [ext.echo_batch(made)]],
}


def export(name, **keywords):
    return lambda ext, made: getattr(made, f"__{name}__")(**keywords)


CASES = {
    "schema": export("arrow_c_schema"),
    "array": export("arrow_c_array"),
    "device array": export("arrow_c_device_array"),
    "stream": export("arrow_c_stream"),
    "device stream": lambda ext, made: ext.counters(1, 1).__arrow_c_device_stream__(),
    "legacy tensor": lambda ext, made: made["a"].__dlpack__(),
    "tensor": lambda ext, made: made["a"].__dlpack__(max_version=(1, 0)),
    "a batch that is taken": lambda ext, made: pa.record_batch(made),
    "a stream that is taken": lambda ext, made: ext.counters(1, 1).to_pyarrow(),
    "a batch for Go": lambda ext, made: ext.echo_batch(BATCH).close(),
    "a batch of its own for Go": lambda ext, made: ext.echo_batch(made).close(),
    "a source": lambda ext, made: ext.count([BATCH, BATCH]),
    "a source that is left": lambda ext, made: left(ext, (b for b in [BATCH, BATCH])),
    "a source whose end fails": lambda ext, made: left(ext, failing_end()),
    "a source that fails": lambda ext, made: fails(ext.count, failing()),
    "values": lambda ext, made: ext.echo(VALUES),
    "scalars of NumPy": lambda ext, made: ext.echo_scalars(numpy.str_("a"), numpy.float32(1), numpy.bool_(True)),
    "arrays of NumPy": lambda ext, made: ext.echo([GRID[0], GRID[:, 0], numpy.ma.array([1, 2], mask=[True, False])]),
    "objects of every kind": lambda ext, made: ext.echo([made, made.schema, made["a"], BATCH, BATCH["a"], pa.table(BATCH), BATCH.schema]),
    "a reader that is read": lambda ext, made: ext.counters(1, 3).read_all(),
    "calls of asyncio": lambda ext, made: LOOP.run_until_complete(awaited(ext)),
    "a cancelled call of asyncio": lambda ext, made: LOOP.run_until_complete(cancelled(ext)),
    **{name: (lambda call: lambda ext, made: fails(call, ext, made))(call) for name, call in REFUSED.items()},
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_calls_give_back_what_they_take(ext, monkeypatch, case):
    monkeypatch.setattr(sys, "unraisablehook", lambda of: None)
    grown = []
    with ext.echo_batch(BATCH) as made:
        for _ in range(4):
            before = in_use()
            for _ in range(CALLS):
                case(ext, made)
            grown.append(tuple(after - was for after, was in zip(in_use(), before)))
    for of_one, limit in zip(zip(*grown), LIMITS):
        assert min(of_one) < limit * CALLS, grown
