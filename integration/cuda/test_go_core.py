"""Arrays and record batches that Go put on the device, read by cuda-core where they are,
and memory of cuda-core that Go takes. Each side waits for the event of the other."""

import ctypes
import time

import golib
import nanoarrow
import numpy as np
import pytest
from cuda.core import Buffer, ManagedMemoryResource, PinnedMemoryResource
from cuda.core.utils import StridedMemoryView
from nanoarrow.c_schema import c_schema

import abi
import capsules
import cudacore
import driver
import go
import simulator
from cudaarray import Exported

pytestmark = pytest.mark.usefixtures("golang")

LATE = 0.05  # seconds, in which a call of Go that does not wait is over


@pytest.fixture
def device(machine):
    return cudacore.use_device(0)


@pytest.fixture
def theirs(device):
    """A stream of cuda-core."""
    with cudacore.stream(device) as made:
        yield made


class Taken:
    """An array or a batch of Go's as a consumer takes it, until it is released."""

    def __init__(self, made):
        _, self._capsule = made.__arrow_c_device_array__()
        self._struct = abi.ArrowDeviceArray.from_address(abi.capsule_pointer(self._capsule, "arrow_device_array"))
        assert self._struct.device_type == abi.CUDA and self._struct.device_id == 0

    @property
    def event(self):
        return ctypes.c_void_p.from_address(self._struct.sync_event).value

    def values(self, column=None):
        """The buffer of the values of an array of integers, as cuda-core's."""
        array = self._struct.array if column is None else self._struct.array.children[column].contents
        size = (array.offset + array.length) * 8
        return Buffer.from_handle(array.buffers[1], size, owner=self)


def copy(stream, buffer):
    """A copy in page-locked memory, which is there when the stream has done it."""
    target, got = cudacore.pinned(np.zeros(buffer.size // 8, "i8"))
    buffer.copy_to(target, stream=stream)
    return got


@pytest.mark.simulator
@pytest.mark.parametrize("rows", ["valid", "large"])
@pytest.mark.parametrize("pause", [0, 0.001, 0.01])
def test_a_wait_that_core_does_not_make_is_reported(theirs, rows, pause):
    """In every run, whatever Go has asked the driver about its own copy by then."""
    for _ in range(10):
        for waits in True, False:
            with go.on_device("int64", rows) as made:
                taken = Taken(made)
                time.sleep(pause)
                if waits:
                    cudacore.wait(theirs, taken.event)
                copy(theirs, taken.values())
                theirs.sync()
                del taken
            assert bool(simulator.report()["violations"]) == (not waits)
            simulator.library.cudasim_forget_violations()


def test_core_reads_an_array(theirs):
    with go.on_device("int64", "valid") as made, made.slice(2, 6) as part:
        for each, want in ((made, range(1, 8)), (part, range(1, 7))):
            taken = Taken(each)
            cudacore.wait(theirs, taken.event)
            got = copy(theirs, taken.values())
            theirs.sync()
            np.testing.assert_array_equal(got, list(want))
            del taken


def test_core_waits_for_an_array(theirs, stream):
    """Go's copy is held back on a stream. Without the wait, cuda-core's copy runs
    before it, and copies the memory's old contents."""
    with driver.gate(stream) as gate, go.on_device("int64", "valid", stream=stream) as made:
        taken = Taken(made)
        cudacore.wait(theirs, taken.event)
        got = copy(theirs, taken.values())
        done = theirs.record()
        cudacore.stays_pending(done)
        assert not made.ready() and (got == 0).all()
        gate.open()
        done.sync()
        assert made.ready()
        np.testing.assert_array_equal(got, np.arange(1, 8))
        del taken


def test_core_waits_for_a_batch(theirs, stream):
    """It releases the batch when its own copies are queued: Go keeps the memory for them."""
    with driver.gate(stream) as gate:
        with go.on_device("int64", "valid", stream=stream, kind=golib.GoBatch) as made:
            taken = Taken(made)
            made.used_on(int(theirs.handle))
        cudacore.wait(theirs, taken.event)
        got = [copy(theirs, taken.values(column)) for column in (0, 1)]
        del taken
        done = theirs.record()
        cudacore.stays_pending(done)
        gate.open()
        done.sync()
    for each in got:
        np.testing.assert_array_equal(each, np.arange(1, 8))


def test_go_waits_for_what_core_wrote_into_its_array(theirs):
    """In place: the consumer of the export gets an event behind cuda-core's work."""
    source, _ = cudacore.pinned(np.arange(70, 77))
    with go.on_device("int64", "valid") as made:
        made.wait()
        taken = Taken(made)
        with driver.gate(int(theirs.handle)) as gate:
            taken.values().copy_from(source, stream=theirs)
            with golib.GoArray.from_arrow(made.after(int(theirs.handle))) as back:
                assert made.ready() and not back.ready()
                with go.opening(gate, LATE), back.copy_to_host() as host:
                    assert back.ready()
                    assert host.values() == list(range(70, 77))
        del taken


class Produced:
    """An array, or a batch of two such columns, over memory of cuda-core: for consumers of
    the Arrow PyCapsule interface. Its event is cuda-core's."""

    def __init__(self, resource, stream, values, batch=False):
        self._source, _ = cudacore.pinned(values)
        self._length, self._batch, self._stream = len(values), batch, stream
        self.buffer = resource.allocate(values.nbytes, stream=stream)

    def write(self):
        self.buffer.copy_from(self._source, stream=self._stream)
        self.event = self._stream.record()
        self._handle = ctypes.c_void_p(int(self.event.handle))

    def _column(self):
        return capsules.Tree(self._length, None, int(self.buffer.handle), keep=self)

    def __arrow_c_device_array__(self, requested_schema=None):
        tree, schema = self._column(), nanoarrow.int64()
        if self._batch:
            tree = capsules.Tree(self._length, None, children=[self._column(), self._column()])
            schema = nanoarrow.struct({"a": nanoarrow.int64(), "b": nanoarrow.int64()})
        struct = capsules.export(tree, abi.CUDA, 0, ctypes.addressof(self._handle))
        return capsules.Produced(c_schema(schema), struct).__arrow_c_device_array__()

    def close(self):
        self.buffer.close(self._stream)


@pytest.fixture(params=[golib.GoArray, golib.GoBatch])
def kind(request):
    return request.param


@pytest.fixture
def produced(device, theirs, kind):
    made = Produced(device.memory_resource, theirs, np.arange(1000), kind is golib.GoBatch)
    yield made
    go.settle()
    made.close()


def values(host, kind):
    """Of each column."""
    got = host.values()
    return [got] if kind is golib.GoArray else [[row[name] for row in got] for name in "ab"]


def test_go_takes_memory_of_core(produced, kind):
    produced.write()
    with kind.from_arrow(produced) as taken, taken.slice(10, 20) as part, part.copy_to_host() as host:
        assert all(column == list(range(10, 20)) for column in values(host, kind))
        assert capsules.exported() > 0
    go.settle()
    assert capsules.exported() == 0


def test_go_waits_for_core(produced, kind, theirs):
    """A write of cuda-core is held back, and so are its event and the batch."""
    with driver.gate(int(theirs.handle)) as gate:
        produced.write()
        with kind.from_arrow(produced) as taken:
            cudacore.stays_pending(produced.event)
            assert not taken.ready()
            with go.opening(gate, LATE), taken.copy_to_host() as host:
                assert produced.event.is_done  # or Go did not wait
                assert all(column == list(range(1000)) for column in values(host, kind))


def test_go_waits_on_the_device(produced, kind, theirs, stream):
    """A copy of Go's on the device waits there, not the host."""
    with driver.gate(int(theirs.handle)) as gate:
        produced.write()
        with kind.from_arrow(produced) as taken, taken.copy_to(abi.CUDA, 0, stream) as copied:
            cudacore.stays_pending(produced.event)
            assert not copied.ready()
            with go.opening(gate, LATE), copied.copy_to_host() as host:
                assert produced.event.is_done
                assert all(column == list(range(1000)) for column in values(host, kind))


@pytest.mark.parametrize("resource", [ManagedMemoryResource, PinnedMemoryResource])
def test_there_and_back(device, theirs, resource):
    """cuda-core's memory through Go's hands, as it is, to cuda-core again. Memory of these
    resources is the device's too."""
    made = Produced(resource(), theirs, np.arange(1000))
    with driver.gate(int(theirs.handle)) as gate:
        if resource is PinnedMemoryResource:
            gate.open()  # a copy within the host is waited for
        made.write()
        with golib.GoArray.from_arrow(made) as array:
            taken = Taken(array)
            assert taken.event == int(made.event.handle)
            with cudacore.stream(device) as other:
                cudacore.wait(other, taken.event)
                buffer = device.allocate(8000, stream=other)
                taken.values().copy_to(buffer, stream=other)
                got = copy(other, buffer)
                buffer.close(other)
                gate.open()
                other.sync()
            del taken
    np.testing.assert_array_equal(got, np.arange(1000))
    go.settle()
    made.close()


def test_core_views_a_column_by_the_cuda_array_interface(theirs, stream, other):
    """It takes the read-only flag, and orders its stream behind the column's."""
    with driver.gate(stream) as gate, go.on_device("int64", "valid", stream=stream) as array:
        exported = Exported(array, other)
        view = StridedMemoryView.from_cuda_array_interface(exported, stream_ptr=int(theirs.handle))
        assert view.readonly and view.shape == (7,) and view.dtype == np.int64
        assert view.ptr == exported.__cuda_array_interface__["data"][0]
        done = theirs.record()
        cudacore.stays_pending(done)
        gate.open()
        done.sync()
        assert array.ready()
        del view, exported
