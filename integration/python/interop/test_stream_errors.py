"""Errors of streams between Go and PyArrow or Arrow C++: they come in their place, with their text and their number, and end
the stream; nothing is left of it."""

import ctypes
import errno
import re

import pyarrow as pa
import pytest

import abi
import cpp
import golib
from golib import GoArray, GoBatch, GoError
from gostream import GoStream, wait_until
from streams import BATCHES, LINKS, TABLE, Plain, Spy, cpp_to_go, go_to_cpp, reader, rows

each_after = pytest.mark.parametrize("after", [0, 1, 3])
each_host_link = pytest.mark.parametrize("link", LINKS[:2], ids=lambda link: link.name)


def taken(stream, **options):
    return GoStream.take(ctypes.addressof(stream), **options)


# Of Arrow C++ and of Python, in Go.

# The number of a Status of Arrow C++, and the Status that it makes of that number.
ERRORS = {
    "IOError": (errno.EIO, "IOError"),
    "NotImplemented": (errno.ENOSYS, "NotImplemented"),
    "Out of memory": (errno.ENOMEM, "Out of memory"),
    "Invalid": (errno.EINVAL, "Invalid"),
    "Cancelled": (errno.EINVAL, "Invalid"),
    "Key error": (errno.EINVAL, "Invalid"),
    "Unknown error": (errno.EINVAL, "Invalid"),
}


@each_after
@pytest.mark.parametrize("status", ERRORS)
def test_go_sees_the_number_and_the_text(status, after):
    number, _ = ERRORS[status]
    for device_type in (abi.CPU, abi.EXT_DEV):
        options = {"device_type": device_type, "fails_after": after, "status": status, "message": "no more, ünd ende"}
        with cpp_to_go(reader(), **options) as go:
            for _ in range(after):
                go.next().release()
            for _ in range(3):
                text = rf"ArrowDeviceArrayStream\.get_next: .*\(errno {number}\): {status}: no more, ünd ende$"
                with pytest.raises(GoError, match=text):
                    go.next()
            assert cpp.stats()["sources"] == 1, "until the release"


@pytest.mark.parametrize("status", ERRORS)
def test_errors_of_cpp_come_back_from_go(status):
    """With the number that they left with, which is all that Arrow C++ looks at."""
    number, seen_as = ERRORS[status]
    with cpp_to_go(reader(), fails_after=1, status=status, message="no more") as go, go.exported() as stream:
        spy = Spy(stream)
        with cpp.Reader(ctypes.addressof(stream)) as back:
            assert back.read_next_batch().num_rows == 2
            for _ in range(2):
                with pytest.raises(cpp.CppError, match=f"{status}: no more$") as e:
                    back.read_next_batch()
                assert e.value.status == seen_as
    assert spy.answers == [0] + [number] * 2


@each_after
@each_host_link
@pytest.mark.parametrize("error", [OSError, ValueError, NotImplementedError, MemoryError])
def test_an_exception_in_a_python_source_is_the_error_in_go(error, link, after):
    def batches():
        yield from BATCHES[:after]
        raise error("disk gone")

    with link.to_go(reader(batches(), TABLE.schema)) as go:
        for _ in range(after):
            go.next().release()
        for _ in range(2):
            with pytest.raises(GoError, match="disk gone"):
                go.next()


def test_go_does_not_ask_again_after_an_error():
    with cpp.exported(reader()) as stream:
        spy = Spy(stream, "get_next", errno.EIO, b"disk gone")
        with taken(stream) as go:
            for _ in range(3):
                with pytest.raises(GoError, match=r"input/output error \(errno 5\): disk gone$"):
                    go.next()
    assert spy.calls == ["get_schema", "get_next", "get_last_error"]


def test_errors_are_seen_through_a_prefetch():
    """In their place, though Go knew of them before."""
    with cpp_to_go(reader(), prefetch=5, fails_after=2, message="no more") as go:
        for _ in range(2):
            go.next().release()
        with pytest.raises(GoError, match="Invalid: no more$"):
            go.next()
    wait_until(lambda: cpp.stats()["sources"] == 0)


LONGEST = 64 << 10  # bytes of a producer's text that an error of Go's has
TEXTS = {
    "empty": (b"", ""),
    "none": (None, ""),
    "not UTF-8": (b"caf\xe9", ": caf\ufffd"),
    "longest": (b"x" * LONGEST, ": " + "x" * LONGEST),
    "too long": (b"x" * 100_000, ": " + "x" * LONGEST + "... (100000 bytes)"),
}


@pytest.mark.parametrize("text, seen", TEXTS.values(), ids=TEXTS)
def test_go_takes_any_number_and_any_text(text, seen):
    for number in (errno.ENOMEM, 9999, -7):
        with cpp.exported(reader()) as stream:
            spy = Spy(stream, "get_next", number, text)
            with taken(stream) as go, pytest.raises(GoError) as e:
                go.next()
        assert str(e.value).endswith((f"(errno {number})" if number > 0 else f"code {number}") + seen)
        assert spy.calls == ["get_schema", "get_next", "get_last_error"]


def test_a_stream_without_get_last_error_is_read():
    with cpp.exported(reader()) as stream:
        stream.get_last_error = None
        with taken(stream) as go:
            assert rows(go) == [batch.to_pylist() for batch in BATCHES]
    with cpp.exported(reader()) as stream:
        spy = Spy(stream, "get_next", errno.EIO, b"unheard")
        stream.get_last_error = None
        with taken(stream) as go, pytest.raises(GoError, match=r"get_next: input/output error \(errno 5\)$"):
            go.next()
    assert spy.calls == ["get_schema", "get_next"]


# What is done to a stream, and the error of its import.
REFUSED = {
    "get_schema fails": (lambda stream: Spy(stream, "get_schema", errno.ENOSYS, b"no schema"), r"get_schema: .*\(errno 38\): no schema$"),
    "no get_schema": (lambda stream: setattr(stream, "get_schema", None), "get_schema"),
    "no get_next": (lambda stream: setattr(stream, "get_next", None), "get_next"),
    "device 0": (lambda stream: setattr(stream, "device_type", 0), "device_type"),
    "device -1": (lambda stream: setattr(stream, "device_type", -1), "device_type"),
    "released": (lambda stream: abi.release(stream), "release"),
}


@pytest.mark.parametrize("change, text", REFUSED.values(), ids=REFUSED)
def test_a_stream_that_is_refused_is_released(change, text):
    for of_arrays in (False, True):
        with cpp.exported(reader()) as stream:
            spy = change(stream)
            with pytest.raises(GoError, match=rf"ArrowDeviceArrayStream\.{text}"):
                taken(stream, of_arrays=of_arrays)
            assert not abi.is_filled(stream)
            assert cpp.stats()["sources"] == 0
            assert spy is None or spy.calls == ["get_schema", "get_last_error"]
    with pytest.raises(GoError, match="ArrowDeviceArrayStream"):
        GoStream.take(0)


def test_a_stream_of_arrays_is_no_stream_of_batches():
    with cpp.exported_chunks(pa.chunked_array([[1, 2], [3]])) as stream:
        with pytest.raises(GoError, match=r"ArrowDeviceArrayStream\.get_schema"):
            taken(stream)
        assert not abi.is_filled(stream)


def test_a_stream_of_batches_is_a_stream_of_structs():
    with cpp.exported(reader()) as stream, taken(stream, of_arrays=True) as go:
        assert rows(go) == [batch.to_pylist() for batch in BATCHES]


def test_arrays_of_another_device_than_the_stream_are_refused_and_released():
    """Arrow C++ takes them, by the device of each array."""
    with cpp.exported(reader()) as stream:
        stream.device_type = abi.CUDA
        with taken(stream) as go:
            assert go.describe()["device"] == "cuda"
            for _ in range(2):
                with pytest.raises(GoError, match=r"ArrowDeviceArrayStream\.get_next\.ArrowDeviceArray\.device_type = 1, want 2"):
                    go.next()
            assert golib.stats()["imported_arrays"] == 0


def test_full_validation_ends_the_stream_at_the_first_bad_batch():
    offsets = bytearray(b"\0\0\0\0\1\0\0\0\3\0\0\0")
    array = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(offsets), pa.py_buffer(b"abc")])
    bad = pa.record_batch([array], names=["s"])
    offsets[4] = 9  # larger than the last one
    good = pa.record_batch({"s": ["x"]})
    source = reader([good, bad, good])
    with cpp_to_go(source, full_validation=True) as go:
        go.next().release()
        for _ in range(2):
            with pytest.raises(GoError, match=r"cdevice: validate: column\[0\].offsets\[2\] = 3, want at least 9"):
                go.next()
    source.close()


# Of Go, in Arrow C++ and PyArrow.

# The failure, its number, the Status of Arrow C++, and the text.
FAILURES = {
    "error": (errno.EIO, "IOError", "disk on fire"),
    "invalid": (errno.EINVAL, "Invalid", "disk on fire: invalid"),
    "type": (errno.EINVAL, "Invalid", "disk on fire: type error"),
    "not_implemented": (errno.ENOSYS, "NotImplemented", "disk on fire: not implemented"),
    "not_supported": (errno.ENOTSUP, "IOError", "disk on fire: not supported"),
    "cancelled": (errno.ECANCELED, "IOError", "disk on fire: context canceled"),
    "deadline": (errno.ETIMEDOUT, "IOError", "disk on fire: context deadline exceeded"),
    "out_of_memory": (errno.ENOMEM, "Out of memory", "disk on fire: cannot allocate memory"),
    "no_space": (errno.ENOSPC, "IOError", "disk on fire: no space left on device"),
    "end_inside": (errno.EIO, "IOError", "disk on fire: EOF"),
    "nothing": (errno.EINVAL, "Invalid", "cdevice: neither a batch nor an error: invalid"),
    "panic": (errno.EIO, "IOError", "cdevice: panic: disk on fire"),
    "panic_with_error": (errno.ENOMEM, "Out of memory", "cdevice: panic: disk on fire: cannot allocate memory"),
    "runtime_error": (errno.EIO, "IOError", "cdevice: panic: runtime error: index out of range [0] with length 0"),
    "goexit": (errno.EIO, "IOError", "cdevice: the code that makes the items of the stream ended its goroutine"),
}
each_failure = pytest.mark.parametrize("failure", FAILURES)
# The exception of PyArrow for a Status.
SEEN_AS = {"IOError": OSError, "Invalid": pa.ArrowInvalid, "NotImplemented": pa.ArrowNotImplementedError, "Out of memory": pa.ArrowMemoryError}


def failing(how, failure, after, item):
    return GoStream.of([item] * after, like=item, how=how, fails_after=after, failure=failure, message="disk on fire")


def sources_of(failure):
    """goexit would end the thread that a function is called on."""
    return ["iterator"] if failure == "goexit" else ["iterator", "function"]


@each_after
@each_failure
@each_host_link
def test_a_consumer_sees_what_fails_in_go(link, failure, after):
    _, seen_as, text = FAILURES[failure]
    for how in sources_of(failure):
        with GoBatch.make("utf8", "nulls") as item, failing(how, failure, after, item) as go, link.from_go(go) as there:
            go.release()
            for _ in range(after):
                assert there.read_next_batch().num_rows == 7
            for _ in range(3):  # it may ask again
                with pytest.raises(SEEN_AS[seen_as] if link is Plain else cpp.CppError, match=re.escape(text)) as e:
                    there.read_next_batch()
                assert link is Plain or (e.value.status, e.value.message) == (seen_as, text), how
            assert golib.stats()["sources"] == (0 if how == "iterator" else 1)
        assert golib.stats()["sources"] == 0


@each_failure
def test_failures_of_go_have_a_number_and_a_text(failure):
    number, _, text = FAILURES[failure]
    for how in sources_of(failure):
        with GoBatch.make("int32", "valid") as item, failing(how, failure, 1, item) as go, go.exported() as stream:
            array = abi.ArrowDeviceArray()
            assert abi.get_next(stream, array) == 0
            assert abi.last_error(stream) is None
            abi.release(array)
            assert abi.get_next(stream, array) == number, how
            assert abi.last_error(stream) == text, how
            assert not abi.is_filled(array)
            with abi.owned(abi.ArrowSchema()) as schema:
                assert abi.get_schema(stream, schema) == 0
            assert abi.last_error(stream) is None, "of the last call"


@each_failure
def test_failures_keep_their_number_on_their_way(failure):
    """From Go to Go, and from there to Arrow C++."""
    number, seen_as, text = FAILURES[failure]
    with GoBatch.make("int32", "valid") as item, failing("iterator", failure, 2, item) as there, there.exported() as stream:
        with taken(stream) as go, go_to_cpp(go) as back:
            for _ in range(2):
                back.read_next_batch()
            with pytest.raises(cpp.CppError, match=rf"\(errno {number}\): {re.escape(text)}$") as e:
                back.read_next_batch()
            assert e.value.status == seen_as


def test_failures_of_go_come_back_from_cpp():
    with GoBatch.make("int32", "valid") as item, failing("iterator", "panic", 2, item) as there, go_to_cpp(there) as read:
        source = reader(read, read.schema)
        with cpp_to_go(source) as go:
            for _ in range(2):
                go.next().release()
            with pytest.raises(GoError, match="cdevice: panic: disk on fire"):
                go.next()
        source.close()


@pytest.mark.parametrize("failure", ["error", "panic", "goexit", "nothing"])
def test_failures_in_streams_of_arrays(failure):
    _, seen_as, text = FAILURES[failure]
    with GoArray.make("utf8", "nulls") as item, failing("iterator", failure, 2, item) as go, go.exported() as stream:
        with pytest.raises(cpp.CppError) as e:
            cpp.read_chunks(ctypes.addressof(stream))
        assert (e.value.status, e.value.message) == (seen_as, text.replace("a batch", "a array"))
        assert not abi.is_filled(stream)


@pytest.mark.parametrize("failure", ["error", "panic", "goexit"])
@pytest.mark.parametrize("through", [GoStream.through_arrow_go, lambda go: go.copy_to(abi.CPU)], ids=["arrow-go", "copies"])
def test_failures_are_seen_through_other_readers(failure, through):
    _, seen_as, text = FAILURES[failure]
    with GoBatch.make("utf8", "nulls") as item, failing("iterator", failure, 2, item) as source:
        with through(source) as go, go_to_cpp(go) as there:
            for _ in range(2):
                assert there.read_next_batch().num_rows == 7
            with pytest.raises(cpp.CppError) as e:
                there.read_next_batch()
            assert (e.value.status, e.value.message) == (seen_as, text)
    wait_until(lambda: golib.stats()["sources"] == golib.stats()["exported_streams"] == 0)


def test_an_item_that_is_gone_is_an_error():
    """The source looks for it when it is asked: an error that only comes then."""
    with GoBatch.make("utf8", "nulls") as item:
        go = GoStream.of([item])
    with go, go_to_cpp(go) as there, pytest.raises(cpp.CppError, match=r"^IOError: golib: handle \d+ is not alive$"):
        there.read_next_batch()


def test_a_panic_ends_only_its_stream():
    with GoBatch.make("utf8", "nulls") as item, failing("function", "panic", 0, item) as bad, GoStream.of([item]) as good:
        with go_to_cpp(bad) as there, go_to_cpp(good) as other:
            with pytest.raises(cpp.CppError, match="disk on fire"):
                there.read_next_batch()
            assert other.read_next_batch().num_rows == 7


@pytest.mark.parametrize("how", ["iterator", "function"])
@pytest.mark.parametrize("failure", ["error", "panic"])
def test_many_failures_leave_nothing(how, failure):
    with GoBatch.make("utf8", "nulls") as item:
        for i in range(200):
            with failing(how, failure, i % 4, item) as go, go_to_cpp(go) as there:
                for _ in range(i % 4):
                    there.read_next_batch()
                for _ in range(i % 3):
                    with pytest.raises(cpp.CppError):
                        there.read_next_batch()
