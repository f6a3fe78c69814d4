"""How asynchronous streams between Arrow C++ and Go end before their end: errors, of
either side's sources and of contexts, and tasks that Arrow C++ loses.

An error overtakes tasks queued in Arrow C++, so the sources here fail only once the
test has taken all earlier batches.
"""

import errno
import itertools
import threading

import pyarrow as pa
import pytest

import abi
import cpp
import goasync
import golib
import gosource
import recorder
from asyncstreams import BATCHES, ROWS, SCHEMA, TaskWatch, cpp_to_go, go_to_cpp
from goasync import AsyncError
from golib import GoError
from gosource import Context, Failure
from gostream import released
from streams import go_batches, reader


class Gate:
    """A generator of some items that waits for open(), and then gives the others or
    raises an exception."""

    def __init__(self, first, then=()):
        self._first, self._then = first, then
        self._reached, self._opened, self.closed = threading.Event(), threading.Event(), threading.Event()

    def open(self):
        self._opened.set()

    def __iter__(self):
        try:
            yield from self._first
            self._reached.set()
            assert self._opened.wait(recorder.PATIENCE)
            if isinstance(self._then, Exception):
                raise self._then
            yield from self._then
        finally:
            self.closed.set()

    def wait_until_reached(self):
        """Until it is asked for an item behind the gate."""
        assert self._reached.wait(recorder.PATIENCE)

    def wait_until_closed(self):
        assert self.closed.wait(recorder.PATIENCE)


# From Arrow C++ to Go.


@pytest.mark.parametrize("status", cpp.STATUS)
def test_failure_of_a_source_in_cpp_comes_after_its_batches(status):
    """Arrow C++ reports every failure as EINVAL, with its text and nothing more."""
    with cpp_to_go(reader(BATCHES), fails_after=3, status=status, message="dïsk gone") as stream:
        for want in ROWS[:3]:
            with stream.next() as batch:
                assert batch.values() == want
        for _ in range(2):
            with pytest.raises(AsyncError) as e:
                stream.next()
            assert (e.value.callback, e.value.code, e.value.message) == ("ArrowAsyncDeviceStreamHandler.on_error", errno.EINVAL, "dïsk gone")
            assert e.value.metadata == {}
            assert stream.schema.equals(SCHEMA)
            assert "ArrowAsyncDeviceStreamHandler.on_error: invalid argument (errno 22): dïsk gone" in str(e.value)


def test_exception_in_a_python_source_of_cpp_reaches_go():
    def broken():
        yield BATCHES[0]
        raise RuntimeError("the cable is cut")

    with cpp_to_go(reader(broken(), SCHEMA)) as stream:
        stream.next().release()
        with pytest.raises(AsyncError, match="the cable is cut"):
            stream.next()


def test_batch_that_is_not_valid_ends_the_stream_in_go():
    """With full validation, before the program sees it; Arrow C++ is cancelled when the stream is closed."""
    bad = pa.StringArray.from_buffers(2, pa.py_buffer(b"\0\0\0\0\2\0\0\0\1\0\0\0"), pa.py_buffer(b"abc"))
    source = reader([pa.record_batch({"s": bad})] * 3)
    with cpp_to_go(source, full_validation=True) as stream:
        with pytest.raises(GoError, match=r"validate: column\[0\].offsets\[2\] = 1") as e:
            stream.next()
        assert not isinstance(e.value, AsyncError)


def test_end_of_the_context_ends_a_stream_in_go():
    """No batch comes after it, though the source has always one more; ready batches are
    dropped; Arrow C++ is cancelled, and its error for that is not the stream's."""
    endless = reader(itertools.cycle(BATCHES), SCHEMA)
    with Context() as context, cpp_to_go(endless, queue_size=2, context=context) as stream:
        with stream.next() as batch:
            context.cancel()
            with pytest.raises(GoError, match="context canceled$") as e:
                stream.next()
            assert not isinstance(e.value, AsyncError)
            assert batch.values() == ROWS[0]


def test_schema_of_no_batch_is_refused():
    with goasync.AsyncStream() as stream:
        producer = recorder.RecordingProducer(stream.handler)
        assert producer.on_schema(pa.int32()) == errno.EINVAL
        producer.release()
        with pytest.raises(GoError, match="ArrowAsyncDeviceStreamHandler.on_schema"):
            stream.schema
        assert producer.log.calls == []


# From Go to Arrow C++.

FAILURES = {
    "error": (errno.EIO, "^Unknown error: dïsk gone$"),
    "invalid": (errno.EINVAL, "dïsk gone: invalid"),
    "not_implemented": (errno.ENOSYS, "dïsk gone: not implemented"),
    "not_supported": (errno.ENOTSUP, "dïsk gone: .*not supported"),
    "no_space": (errno.ENOSPC, "dïsk gone: no space left on device"),
    "cancelled": (errno.ECANCELED, "dïsk gone: context canceled"),
    "panic": (errno.EIO, "cdevice: panic: dïsk gone"),
    "goexit": (errno.EIO, "cdevice: export: the reader ended its goroutine"),
}


@pytest.mark.parametrize("after", [0, 1, 3])
@pytest.mark.parametrize("kind", FAILURES)
def test_failure_of_a_source_in_go_reaches_cpp(kind, after):
    code, text = FAILURES[kind]
    with go_batches(BATCHES) as items:
        gate = Gate(items[:after], [Failure(kind, "dïsk gone")])
        with go_to_cpp(iter(gate), like=items[0]) as consumer:
            assert consumer.schema.equals(SCHEMA)
            for i in range(after):
                assert consumer.next()[0].equals(BATCHES[i])
            gate.open()
            with pytest.raises(cpp.CppError, match=text) as e:
                consumer.next()
            assert e.value.code == code
            consumer.wait_for_release()


def test_exception_in_a_python_source_of_go_reaches_cpp():
    with go_batches(BATCHES) as items:
        gate = Gate(items[:1], RuntimeError("the cable is cut"))
        with go_to_cpp(iter(gate), like=items[0]) as consumer:
            consumer.next()
            gate.open()
            with pytest.raises(cpp.CppError, match="the cable is cut"):
                consumer.next()
        gate.wait_until_closed()


def test_end_of_the_context_reaches_cpp():
    """While the source produces a batch that no caller waits for any more."""
    with go_batches(BATCHES) as items, Context() as context:
        gate = Gate(items[:2], items[2:])
        with go_to_cpp(iter(gate), like=items[0], context=context) as consumer:
            for want in BATCHES[:2]:
                assert consumer.next()[0].equals(want)
            gate.wait_until_reached()
            context.cancel()
            with pytest.raises(cpp.CppError, match="cdevice: export: context canceled") as e:
                consumer.next()
            assert e.value.code == errno.ECANCELED
            consumer.wait_for_release()
            assert not gate.closed.is_set()
        gate.open()
        gate.wait_until_closed()


def test_cancel_in_cpp_does_not_wait_for_the_source_in_go():
    """The handler is released while the source has no answer; a later answer, even an
    error, is dropped."""
    with go_batches(BATCHES) as items:
        gate = Gate(items[:1], [Failure("error", "too late")])
        with go_to_cpp(iter(gate), like=items[0]) as consumer:
            consumer.next()
            gate.wait_until_reached()
            consumer.cancel()
            consumer.wait_for_release()
            assert consumer.next() is None
            assert not gate.closed.is_set()
        gate.open()
        gate.wait_until_closed()


def test_consumer_without_a_queue_asks_for_nothing_which_is_an_error():
    with go_batches(BATCHES) as items, go_to_cpp(items, queue_size=0) as consumer:
        with pytest.raises(cpp.CppError, match=r"ArrowAsyncProducer.request.n = 0, want at least 1") as e:
            consumer.next()
        assert e.value.code == errno.EINVAL


# On the way.


def test_errors_pass_through_go_with_their_code():
    """An error that came is an error that goes; each hand puts its name before it."""
    with cpp.Consumer() as back:
        gate = Gate(BATCHES[:2], RuntimeError("the cable is cut"))
        with cpp_to_go(reader(iter(gate), SCHEMA)) as stream:
            stream.forward(back.handler)
            for want in BATCHES[:2]:
                assert back.next()[0].equals(want)
            gate.open()
            with pytest.raises(cpp.CppError, match=r"on_error: invalid argument \(errno 22\): .*the cable is cut") as e:
                back.next()
            assert e.value.code == errno.EINVAL


def test_cancel_in_cpp_passes_through_go():
    with cpp.Consumer(queue_size=1) as back:
        endless = (batch for batch in iter(lambda: BATCHES[1], None))
        with cpp_to_go(reader(endless, SCHEMA)) as stream:
            stream.forward(back.handler)
            assert back.next()[0].equals(BATCHES[1])
            back.cancel()
            back.wait_for_release()
    assert cpp.stats()["sources"] == 0


# Tasks that Arrow C++ loses. The tests end them, so nothing leaks here.


def test_error_overtakes_what_is_queued_in_cpp():
    """Its generator gives the error and then the end, and extracts nothing any more.
    The producer's struct lives until its tasks are ended."""
    with go_batches(BATCHES) as items, cpp.Consumer() as consumer:
        watch = TaskWatch(consumer.handler)
        gosource.export([*items[:2], Failure("error", "disk gone")], consumer.handler, like=items[0])
        consumer.wait_for_release()
        with pytest.raises(cpp.CppError, match="disk gone"):
            consumer.next()
        assert consumer.next() is None
        consumer.close()
        stats = golib.stats()
        assert (stats["async_tasks"], stats["async_producers"]) == (2, 1)
        assert watch.discard() == 2


def test_dropped_consumer_in_cpp_loses_what_is_queued():
    with go_batches(BATCHES) as items, cpp.Consumer(queue_size=2) as consumer:
        watch = TaskWatch(consumer.handler)
        gosource.export(items[:2], consumer.handler, like=items[0])
        consumer.wait_for_release()
        consumer.drop()
        assert golib.stats()["async_tasks"] == 2
        assert watch.discard() == 2


def test_failed_copy_in_go_is_told_to_cpp():
    """By on_error: copies are made before they are sent."""
    there = cpp.copy_to_device(BATCHES[3], 7)
    with released([golib.GoBatch.from_arrow(there)]) as [item], cpp.Consumer() as consumer:
        gosource.export([item], consumer.handler, like=item, copy_to=(abi.CPU, -1))
        with pytest.raises(cpp.CppError, match="not supported") as e:
            consumer.next()
        assert e.value.code == errno.ENOTSUP
        consumer.wait_for_release()
