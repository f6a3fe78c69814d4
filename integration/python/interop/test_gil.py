"""The holder of Python's lock while a producer's release callback runs. pylibcudf's
drops a Python reference without taking it."""

import ctypes
import os
import pathlib

import pyarrow as pa
import pytest

import abi
import golib

_default = pathlib.Path(__file__).resolve().parents[3] / "build" / "libgilproducer.so"
_producer = ctypes.CDLL(os.environ.get("GILPRODUCER", str(_default)))


@pytest.mark.parametrize("with_gil", [False, True], ids=["as it is", "with the lock"])
@pytest.mark.parametrize("on_other_thread", [False, True], ids=["Python's thread", "Go's thread"])
def test_release_holds_the_lock_where_the_import_asked_for_it(on_other_thread, with_gil):
    """The thread that calls Go through ctypes has given the lock away, and a thread of
    Go's never had it."""
    before = _producer.gilproducer_releases()
    with abi.structs() as s:
        _producer.gilproducer_export(ctypes.byref(s.array))
        pa.field("nothing", pa.null())._export_to_c(s.addresses[1])
        go = golib.GoArray._import_from_c_device(*s.addresses, release_with_gil=with_gil)
    assert go.values() == [None, None, None]
    assert _producer.gilproducer_releases() == before
    go.release(on_other_thread)
    assert _producer.gilproducer_releases() == before + 1
    assert bool(_producer.gilproducer_held()) == with_gil


def test_lock_is_free_again_after_such_a_release():
    with abi.structs() as s:
        for _ in range(3):
            _producer.gilproducer_export(ctypes.byref(s.array))
            pa.field("nothing", pa.null())._export_to_c(s.addresses[1])
            golib.GoArray._import_from_c_device(*s.addresses, release_with_gil=True).release(on_other_thread=True)
