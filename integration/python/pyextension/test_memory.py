"""Memory of C and Python: what a call takes, it gives back. Go's counts say nothing of it."""

import ctypes
import gc
import sys

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
    except Boom:
        pass


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
