"""Device streams of Arrow C++ with itself: behaviour that Go must work with. A test that fails with a new version of PyArrow
shows which part of Go to review. What Go sees of Arrow C++ is in the tests of interop."""

import ctypes
import errno

import pytest

import abi
import cpp
from streams import TABLE, Spy, reader


def test_a_consumer_asks_again_after_the_end():
    """As often as its reader is asked."""
    with cpp.exported(reader()) as stream:
        spy = Spy(stream)
        with cpp.Reader(ctypes.addressof(stream)) as there:
            assert [there.read_next_batch() is not None for _ in range(5)] == [True] * 3 + [False] * 2
    assert spy.calls == ["get_schema"] + ["get_next"] * 5


def test_a_consumer_asks_again_after_an_error():
    with cpp.exported(reader()) as stream:
        spy = Spy(stream, "get_next", errno.EIO, b"disk gone")
        with cpp.Reader(ctypes.addressof(stream)) as there:
            for _ in range(2):
                with pytest.raises(cpp.CppError, match="^IOError: disk gone$"):
                    there.read_next_batch()
    assert spy.calls == ["get_schema"] + ["get_next", "get_last_error"] * 2


STATUS = {
    errno.ENOMEM: "Out of memory", errno.ENOSYS: "NotImplemented", errno.EINVAL: "Invalid", errno.ECANCELED: "IOError", 9999: "IOError",
}  # fmt: skip


@pytest.mark.parametrize("number, status", STATUS.items())
@pytest.mark.parametrize("text", [b"some text", b"", None])
def test_what_a_consumer_makes_of_a_number(number, status, text):
    with cpp.exported(reader()) as stream:
        spy = Spy(stream, "get_next", number, text)
        with cpp.Reader(ctypes.addressof(stream)) as there, pytest.raises(cpp.CppError) as e:
            there.read_next_batch()
    assert (e.value.status, e.value.message) == (status, (text or b"").decode())
    assert spy.calls == ["get_schema", "get_next", "get_last_error"]


def test_a_stream_without_a_schema_is_released():
    with cpp.exported(reader()) as stream:
        spy = Spy(stream, "get_schema", errno.EIO, b"no schema")
        with pytest.raises(cpp.CppError, match="^IOError: no schema$"):
            cpp.Reader(ctypes.addressof(stream))
        assert not abi.is_filled(stream)
        assert spy.calls == ["get_schema", "get_last_error"]


def test_the_device_of_a_stream_is_not_compared_with_that_of_its_arrays():
    with cpp.exported(reader()) as stream:
        stream.device_type = abi.CUDA
        with cpp.Reader(ctypes.addressof(stream)) as there:
            assert there.device_type == abi.CUDA
            assert there.read_all().equals(TABLE)


def test_the_release_of_a_stream_does_not_close_its_reader():
    """It destroys it. A source of Go's must not wait for more."""
    before = cpp.counters()["sources_closed"]
    with cpp.exported(reader()) as stream, cpp.Reader(ctypes.addressof(stream)) as there:
        there.read_next_batch()
    assert cpp.counters()["sources_closed"] == before
