"""Arrays and record batches between Go and libraries that own streams and events, Numba and cuda-core: each side reads the memory of
the other in place, behind its event."""

import ctypes
import time

import golib
import numpy as np
import pytest

import abi
import capsules
import cudapeers
import driver
import go
import simulator
from helpers import Integers, stays_pending

pytestmark = pytest.mark.usefixtures("golang")

LATE = 0.05  # seconds, in which a call of Go that does not wait is over
NUMBERS = np.arange(1000)


@pytest.fixture(params=cudapeers.PEERS)
def peer(request, machine):
    made = cudapeers.PEERS[request.param]()
    yield made
    made.close()


class Taken:
    """An array or a batch of Go's as a consumer takes it, until it is released."""

    def __init__(self, made):
        _, self._capsule = made.__arrow_c_device_array__()
        self._struct = abi.ArrowDeviceArray.from_address(abi.capsule_pointer(self._capsule, "arrow_device_array"))
        assert self._struct.device_type == abi.CUDA and self._struct.device_id == 0
        at = self._struct.sync_event
        self.event = at and ctypes.c_void_p.from_address(at).value  # none, if the work was waited for

    def place(self, column=None):
        """The address and the number of the integers of an array, or of a column of a batch."""
        array = self._struct.array if column is None else self._struct.array.children[column].contents
        return array.buffers[1] + array.offset * 8, array.length


@pytest.mark.simulator
@pytest.mark.parametrize("rows", ["valid", "large"])
@pytest.mark.parametrize("pause", [0, 0.001, 0.01])
def test_a_wait_that_the_peer_does_not_make_is_reported(peer, rows, pause):
    """In every run, no matter what Go has asked the driver about its own copy by then."""
    for _ in range(5):
        for waits in True, False:
            with go.on_device("int64", rows) as made:
                taken = Taken(made)
                time.sleep(pause)
                if waits:
                    driver.wait(peer.stream, taken.event)
                peer.read(*taken.place())
                peer.record().sync()
                del taken
            assert bool(simulator.report()["violations"]) == (not waits)
            simulator.library.cudasim_forget_violations()


def test_peer_reads_an_array(peer):
    with go.on_device("int64", "valid") as made, made.slice(2, 6) as part:
        for each, want in ((made, range(1, 8)), (part, range(3, 7))):
            taken = Taken(each)
            driver.wait(peer.stream, taken.event)
            got = peer.read(*taken.place())
            peer.record().sync()
            assert got.tolist() == list(want)
            del taken


def test_peer_waits_for_an_array(peer, stream):
    """Go's copy is held back on a stream. Without the wait, the peer's copy runs before it, and copies the memory's old contents."""
    with driver.gate(stream) as gate, go.on_device("int64", "valid", stream=stream) as made:
        taken = Taken(made)
        driver.wait(peer.stream, taken.event)
        got = peer.read(*taken.place())
        done = peer.record()
        stays_pending(done.is_done)
        assert not made.ready() and (got == 0).all()
        gate.open()
        done.sync()
        assert made.ready()
        np.testing.assert_array_equal(got, np.arange(1, 8))
        del taken


def test_peer_waits_for_a_batch(peer, stream):
    """It releases the batch when its own copies are queued: Go keeps the memory for them."""
    with driver.gate(stream) as gate:
        with go.on_device("int64", "valid", stream=stream, kind=golib.GoBatch) as made:
            taken = Taken(made)
            made.used_on(peer.stream)
        driver.wait(peer.stream, taken.event)
        got = [peer.read(*taken.place(column)) for column in (0, 1)]
        del taken
        done = peer.record()
        stays_pending(done.is_done)
        gate.open()
        done.sync()
    for each in got:
        np.testing.assert_array_equal(each, np.arange(1, 8))


def test_peer_reads_page_locked_memory(peer):
    """The device reads it where the host wrote it."""
    with golib.GoArray.make_pinned("int64", "valid") as made:
        source = go.Place(made).buffers[1]
        assert driver.pointer(driver.MEMORY_TYPE, source, ctypes.c_uint) == driver.HOST
        got = peer.read(source, 7)
        peer.record().sync()
        np.testing.assert_array_equal(got, np.arange(1, 8))


def test_go_waits_for_what_the_peer_wrote_into_its_array(peer):
    """In place: the consumer of the export gets an event behind the peer's work."""
    with go.on_device("int64", "valid") as made:
        made.wait()
        taken = Taken(made)
        with driver.gate(peer.stream) as gate:
            written = peer.write(taken.place()[0], np.arange(70, 77))
            with golib.GoArray.from_arrow(made.after(peer.stream)) as back:
                assert made.ready() and not back.ready()
                with go.opening(gate, LATE), back.copy_to_host() as host:
                    assert back.ready() and written.is_done()
                    assert host.values() == list(range(70, 77))
        del taken


@pytest.fixture(params=[golib.GoArray, golib.GoBatch])
def kind(request):
    return request.param


@pytest.fixture
def written(peer, kind):
    """Writes the numbers on the peer's stream when it is called, and returns what Go can take, and the event behind the write."""
    with peer.memory(len(NUMBERS)) as address:

        def write():
            event = peer.write(address, NUMBERS)
            return Integers(address, len(NUMBERS), event.handle, kind is golib.GoBatch), event

        yield write
        go.settle()
        assert capsules.exported() == 0


def values(host, kind):
    """Of each column."""
    got = host.values()
    return [got] if kind is golib.GoArray else [[row[name] for row in got] for name in "ab"]


def test_go_takes_memory_of_the_peer(written, kind):
    numbers, _ = written()
    with kind.from_arrow(numbers) as taken, taken.slice(10, 20) as part, part.copy_to_host() as host:
        assert all(column == list(range(10, 20)) for column in values(host, kind))
        assert capsules.exported() > 0


def test_go_waits_for_the_peer(peer, written, kind):
    """A write of the peer is held back, and so are its event and what Go takes."""
    with driver.gate(peer.stream) as gate:
        numbers, event = written()
        with kind.from_arrow(numbers) as taken:
            stays_pending(event.is_done)
            assert not taken.ready()
            with go.opening(gate, LATE), taken.copy_to_host() as host:
                assert event.is_done()  # or Go did not wait
                assert all(column == NUMBERS.tolist() for column in values(host, kind))


def test_go_waits_on_the_device(peer, written, kind, stream):
    """A copy of Go's on the device waits there, not the host."""
    with driver.gate(peer.stream) as gate:
        numbers, event = written()
        with kind.from_arrow(numbers) as taken, taken.copy_to(abi.CUDA, 0, stream) as copied:
            stays_pending(event.is_done)
            assert not copied.ready()
            with go.opening(gate, LATE), copied.copy_to_host() as host:
                assert event.is_done()
                assert all(column == NUMBERS.tolist() for column in values(host, kind))


@pytest.mark.parametrize("memory", ["device", "managed", "pinned"])
def test_there_and_back(peer, memory):
    """The peer's memory through Go's hands: what comes back is the same memory behind the same event."""
    other = type(peer)()
    with peer.memory(len(NUMBERS), memory) as address, driver.gate(peer.stream) as gate:
        if memory == "pinned":
            gate.open()  # a copy within the host is waited for
        event = peer.write(address, NUMBERS)
        with golib.GoArray.from_arrow(Integers(address, len(NUMBERS), event.handle)) as array:
            taken = Taken(array)
            assert (taken.event, taken.place()) == (event.handle, (address, len(NUMBERS)))
            driver.wait(other.stream, taken.event)
            got = other.read(address, len(NUMBERS))
            gate.open()
            other.record().sync()
            del taken
        go.settle()
        assert capsules.exported() == 0
    np.testing.assert_array_equal(got, NUMBERS)
    other.close()
