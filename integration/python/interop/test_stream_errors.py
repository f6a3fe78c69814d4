"""Errors of streams between Go and PyArrow or Arrow C++: they come in their place, with their text and their number, and end
the stream; nothing is left of it."""

import ctypes
import errno
import itertools
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


def test_errors_are_seen_through_a_prefetch():
    """In their place, though Go knew of them before."""
    with cpp_to_go(reader(), prefetch=5, fails_after=2, message="no more") as go:
        for _ in range(2):
            go.next().release()
        with pytest.raises(GoError, match="Invalid: no more$"):
            go.next()
    wait_until(lambda: cpp.stats()["sources"] == 0)


def test_a_stream_that_is_refused_is_released():
    """The tables of what is refused are in the tests of cdevice."""
    with cpp.exported(reader()) as stream:
        spy = Spy(stream, "get_schema", errno.ENOSYS, b"no schema")
        with pytest.raises(GoError, match=r"get_schema: .*\(errno 38\): no schema$"):
            taken(stream)
        assert not abi.is_filled(stream)
        assert cpp.stats()["sources"] == 0
        assert spy.calls == ["get_schema", "get_last_error"]


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


# Of Go, in Arrow C++ and PyArrow.

# A failure, its number, the Status of Arrow C++, and the text.
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


@each_failure
@each_host_link
def test_a_consumer_sees_what_fails_in_go(link, failure):
    _, seen_as, text = FAILURES[failure]
    for how, after in itertools.product(sources_of(failure), (0, 1, 3)):
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
