"""Streams and events of numba-cuda, and batches of Go's: the tests in test_go_numba.py
use streams of neither."""

import ctypes

import golib
import nanoarrow
import numpy as np
import pytest
from nanoarrow.c_schema import c_schema
from numba import cuda

import abi
import capsules
import cudacore
import driver
import go
from helpers import pinned

pytestmark = pytest.mark.usefixtures("golang")

LATE = 0.05  # seconds, in which a call of Go that does not wait is over


class Query:
    """An event of numba-cuda, with the question that cudacore.stays_pending has."""

    def __init__(self, event):
        self._event = event

    @property
    def is_done(self):
        return self._event.query()


def handle(of):
    return int(of.handle)


class Column:
    """A column of integers of a batch on the device, for the CUDA array interface."""

    def __init__(self, struct, number):
        column = struct.array.children[number].contents
        assert column.offset == 0
        self.__cuda_array_interface__ = {
            "shape": (column.length,),
            "typestr": "<i8",
            "data": (column.buffers[1], False),
            "version": 3,
        }


def test_numba_waits_for_a_batch(stream):
    """Go's copy is held back; numba-cuda's stream waits for the event of the batch. Without
    the wait, its copies are done before there is anything to copy."""
    theirs, done = cuda.stream(), cuda.event(timing=False)
    targets = [pinned(np.zeros(7, "i8")) for _ in range(2)]
    with driver.gate(stream) as gate, go.on_device("int64", "valid", stream=stream, kind=golib.GoBatch) as made:
        _, capsule = made.__arrow_c_device_array__()
        struct = abi.ArrowDeviceArray.from_address(abi.capsule_pointer(capsule, "arrow_device_array"))
        event = ctypes.c_void_p.from_address(struct.sync_event).value
        driver.call("cuStreamWaitEvent", driver.handle(handle(theirs)), driver.handle(event), 0)
        arrays = [cuda.as_cuda_array(Column(struct, number), sync=False) for number in range(2)]
        for array, target in zip(arrays, targets):
            array.copy_to_host(target, stream=theirs)
        done.record(theirs)
        cudacore.stays_pending(Query(done))
        assert not made.ready() and all((target == 0).all() for target in targets)
        gate.open()
        done.synchronize()
        del arrays, struct, capsule
    for target in targets:
        np.testing.assert_array_equal(target, np.arange(1, 8))


class Produced:
    """A batch of two columns over one array of numba-cuda, written on its stream."""

    def __init__(self, values, stream):
        self._source, self._stream = pinned(values), stream
        self._array = cuda.device_array(len(values), values.dtype)
        self.event = cuda.event(timing=False)

    def write(self):
        self._array.copy_to_device(self._source, stream=self._stream)
        self.event.record(self._stream)
        self._handle = ctypes.c_void_p(handle(self.event))

    def __arrow_c_device_array__(self, requested_schema=None):
        address = self._array.__cuda_array_interface__["data"][0]
        columns = [capsules.Tree(len(self._array), None, address, keep=self) for _ in range(2)]
        tree = capsules.Tree(len(self._array), None, children=columns)
        struct = capsules.export(tree, abi.CUDA, 0, ctypes.addressof(self._handle))
        schema = nanoarrow.struct({"a": nanoarrow.int64(), "b": nanoarrow.int64()})
        return capsules.Produced(c_schema(schema), struct).__arrow_c_device_array__()


def test_go_waits_for_numba():
    theirs = cuda.stream()
    produced = Produced(np.arange(1000), theirs)
    with driver.gate(handle(theirs)) as gate:
        produced.write()
        with golib.GoBatch.from_arrow(produced) as taken:
            cudacore.stays_pending(Query(produced.event))
            assert not taken.ready()
            with go.opening(gate, LATE), taken.copy_to_host() as host:
                assert produced.event.query()  # or Go did not wait
                assert host.values() == [{"a": i, "b": i} for i in range(1000)]
    go.settle()
    assert capsules.exported() == 0
