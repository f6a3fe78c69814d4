"""Streams between Go and PyArrow, by C structs of two kinds: device streams, whose other side is Arrow C++, and plain
streams. Asynchronous streams are in asyncstreams.py."""

import contextlib
import ctypes
import functools
import threading

import pyarrow as pa

import abi
import cpp
import transfer
from gostream import GoStream, released

TABLE = pa.table({"a": [1, None, 3, 4, 5, 6], "s": ["x", None, "", "y" * 20, "z", None]}).replace_schema_metadata({"k": "v"})
BATCHES = TABLE.to_batches(2)
FIRST = BATCHES[0]
SOURCES = ["iterator", "function", "table"]  # of a stream of Go's


def reader(batches=BATCHES, schema=None):
    """A pa.RecordBatchReader; for an iterator the schema is given."""
    return pa.RecordBatchReader.from_batches(schema or batches[0].schema, batches)


@contextlib.contextmanager
def go_batches(batches=BATCHES):
    """The batches in Go."""
    with released(transfer.to_go(batch, "pointer") for batch in batches) as items:
        yield items


def rows(items):
    """The rows of each item that Go has read; they are released."""
    with released(items) as read:
        return [item.values() for item in read]


@contextlib.contextmanager
def cpp_to_go(source, full_validation=False, prefetch=0, **options):
    """A GoStream of a pa.RecordBatchReader that Arrow C++ exports."""
    with cpp.exported(source, **options) as stream:
        with GoStream.take(ctypes.addressof(stream), full_validation=full_validation, prefetch=prefetch) as go:
            assert not abi.is_filled(stream), "the consumer moves the stream"
            yield go


@contextlib.contextmanager
def go_to_cpp(go, **options):
    """A cpp.Reader of a GoStream."""
    with go.exported(**options) as stream, cpp.Reader(ctypes.addressof(stream)) as there:
        assert not abi.is_filled(stream), "the consumer moves the stream"
        yield there


class _PlainReader:
    """PyArrow's reader of a plain stream, with the methods of cpp.Reader."""

    device_type = abi.CPU

    def __init__(self, go):
        self._reader = pa.RecordBatchReader.from_stream(go)
        self.schema = self._reader.schema

    def read_next_batch(self):
        """The next batch, or None at the end."""
        with contextlib.suppress(StopIteration):
            return self._reader.read_next_batch()

    def __iter__(self):
        return iter(self.read_next_batch, None)

    def close(self):
        self._reader = None


class Plain:
    """Plain streams between PyArrow and Go."""

    name, struct, device_type = "plain", "ArrowArrayStream", abi.CPU

    @staticmethod
    def to_go(source, **options):
        """A GoStream of a pa.RecordBatchReader."""
        return GoStream.from_arrow(source, **options)

    @staticmethod
    @contextlib.contextmanager
    def from_go(go):
        """A reader of a GoStream."""
        there = _PlainReader(go)
        yield there
        there.close()


class Device:
    """Device streams between Arrow C++ and Go, of batches on a device."""

    struct = "ArrowDeviceArrayStream"

    def __init__(self, name, device_type):
        self.name, self.device_type = name, device_type
        self.to_go = functools.partial(cpp_to_go, device_type=device_type)
        self.from_go = go_to_cpp


LINKS = [Plain, Device("cpu", abi.CPU), Device("ext_dev", abi.EXT_DEV)]


def on_threads(count, work):
    """Calls work on threads that run at the same time, with the number of each, and raises what they raise."""
    errors, start = [], threading.Barrier(count)

    def run(number):
        try:
            start.wait()
            work(number)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=run, args=[i]) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class Spy:
    """Wraps a stream, records its calls and the results of get_next, and fails in one
    of them if a test requests that."""

    def __init__(self, stream, fails=None, number=0, text=None):
        self.calls, self.answers = [], []
        self._kept = [ctypes.create_string_buffer(text) if text is not None else None]

        def before(name, original):
            def call(stream, out):
                self.calls.append(name)
                answer = number if name == fails else original(stream, out)
                if name == "get_next":
                    self.answers.append(answer)
                return answer

            return call

        def get_last_error(_):
            self.calls.append("get_last_error")
            return ctypes.cast(self._kept[0], ctypes.c_void_p).value

        for name in ("get_schema", "get_next"):
            self._put(stream, name, abi.GET(before(name, abi.GET(getattr(stream, name)))))
        if fails:
            self._put(stream, "get_last_error", abi.GET_LAST_ERROR(get_last_error))

    def _put(self, stream, name, callback):
        self._kept.append(callback)
        setattr(stream, name, ctypes.cast(callback, ctypes.c_void_p).value)
