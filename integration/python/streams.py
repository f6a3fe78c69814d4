"""Device streams between Arrow C++, Go and Python's ctypes."""

import contextlib
import ctypes

import abi
import cpp
from gostream import GoStream


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
    with go.exported(**options) as stream, cpp.Reader(ctypes.addressof(stream)) as reader:
        assert not abi.is_filled(stream), "the consumer moves the stream"
        yield reader


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
