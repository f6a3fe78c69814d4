"""Work that is pending when an array changes hands: kernels and copies, which are held until a check has seen that they are."""

import gc
import itertools
import time
import weakref

import child

import golang
import protocols
import work
from compare import equal
from golang import ext
from hold import Hold

import numpy as np

COUNT = 1 << 12 if child.SIMULATED else 1 << 18
TIMES = 2  # the second with kernels that are loaded

_firsts = itertools.count(1000, 7919)
_hidden = []


def next_first():
    """The first of a check's numbers: it must not find those of another one in memory that is used again."""
    return next(_firsts)


def numbers(first):
    return np.arange(first, first + COUNT)


def hidden():
    """A stream that no peer knows, without work."""
    if not _hidden:
        _hidden.append(work.stream())
    return _hidden[0]


def _free():
    """Frees what was dropped before: a free that waits for held work, on a thread of Go, would hold up the calls of this one."""
    golang.warm(numbers(next_first()))


def held_array(peer, first, stream, held):
    """An array of a peer's that work still writes, which is held."""
    _free()
    return peer.pending(COUNT, first, stream, held)


def copied_by_go(first, held):
    """A copy of Go's behind held work on a stream that the peer does not know."""
    source = numbers(first)
    _free()  # leaves memory with other numbers, which a read without order finds
    held.begin(hidden())
    made = golang.copy_on(source, hidden())
    held.check("Go's copy was not enqueued")
    return made


def expect_pending(array, held):
    """The work on an array of Go's is held: nothing has waited for it, and Go knows it."""
    held.check("Go, or the peer, waited when the array changed hands")
    if ext.ready(array):
        raise AssertionError("Go takes the array for complete while the work on it is held")


def read_by_peer(peer, protocol, made, stream, held):
    """The values of an array of Go's whose work is held, and which a peer takes and reads meanwhile; and the time that it took
    to take it."""
    if peer.waits_as(protocol.name):  # then it waits for the work, which Watched sees that Go does not
        return held.waited_for_by(_read, peer, protocol, made, stream, held), None
    began = time.monotonic()
    view = protocols.give(protocol, peer, made, stream, held=held)
    taken = time.monotonic() - began
    held.check("the peer waited when it took the array")
    return held.opened_during(lambda: peer.read(view, stream).result()), taken


def _read(peer, protocol, made, stream, held):
    view = protocols.give(protocol, peer, made, stream, held=held, opens=True)
    return peer.read(view, stream).result()


def go_waits(peer, protocol):
    """Go takes an array that a kernel still writes, at once. It copies it on the GPU, and reads it, when it is written."""
    stream, longest = peer.stream(), 0.0
    follows = protocol.name != "cai" or peer.names_stream
    for _ in range(TIMES):
        first = next_first()
        with Hold() as held:
            array = held_array(peer, first, stream, held)
            if not follows:
                held.open()
                peer.wait(stream)
            began = time.monotonic()
            taken = protocols.take(protocol, peer, array, stream)
            longest = max(longest, time.monotonic() - began)
            if follows:
                expect_pending(taken, held)
                copy = ext.copy_to(taken, golang.CUDA, 0, hidden())
                expect_pending(copy, held)
                got = held.opened_during(golang.numbers, taken)
            else:
                copy = ext.copy_to(taken, golang.CUDA, 0, hidden())
                got = golang.numbers(taken)
        equal(got, numbers(first))
        equal(golang.numbers(copy), numbers(first))
        del copy, taken, array
        peer.forget()
    return f"taken in {longest * 1e3:.1f} ms" if follows else "the peer names no stream: after a wait"


def peer_waits(peer, protocol):
    """The peer takes an array to which Go's copy is pending, and reads it at once on a stream of its own."""
    follows, times = protocol.name != "cai" or peer.follows_stream, []
    for _ in range(TIMES):
        first, stream = next_first(), peer.stream()
        with Hold() as held:
            made = copied_by_go(first, held)
            expect_pending(made, held)
            if follows:
                got, taken = read_by_peer(peer, protocol, made, stream, held)
                times.append(taken)
            else:
                held.open()
                made.synchronize()
                got = peer.read(protocols.give(protocol, peer, made, stream), stream).result()
        equal(got, numbers(first))
        del made
        peer.forget()
    if not follows:
        return "the peer follows no stream: after a wait"
    return "the peer's import waits for the stream" if None in times else f"given in {max(times) * 1e3:.1f} ms"


def through_go(peer, protocol):
    """From the peer to Go and back: the second stream waits for the kernel on the first one."""
    protocols.skip_unless(protocol.name != "cai" or (peer.names_stream and peer.follows_stream), "the peer does not follow streams")
    first, one, two = next_first(), peer.stream(), peer.stream()
    with Hold() as held:
        taken = protocols.take(protocol, peer, held_array(peer, first, one, held), one)
        expect_pending(taken, held)
        got, _ = read_by_peer(peer, protocol, taken, two, held)
    equal(got, numbers(first))


def default_stream(peer, protocol):
    """The kernel runs on the peer's default stream."""
    protocols.skip_unless(protocol.name != "cai" or peer.names_stream, "the peer names no stream")
    protocols.skip_unless(peer.default is not None, "the peer has no default stream")
    first = next_first()
    with Hold() as held:
        array = held_array(peer, first, peer.default, held)
        taken = protocols.take(protocol, peer, array, peer.default)
        expect_pending(taken, held)
        got = held.opened_during(golang.numbers, taken)
    equal(got, numbers(first))


def released_while_read(peer, protocol):
    """A kernel of the peer's still reads Go's memory when both have dropped it: Go frees it later."""
    protocols.skip_unless(protocol.name == "dlpack" or not peer.copies_interface, "the peer's import may be a copy")
    first, stream = next_first(), peer.stream()
    _free()
    before = golang.device_bytes()
    spare = [golang.on_device(np.zeros(COUNT, "i8")) for _ in range(4)]
    made = golang.on_device(numbers(first))
    view = protocols.give(protocol, peer, made, stream)
    address = peer.address(view)  # and not by another protocol, whose use of the memory Go would know of
    for array in spare:  # memory for the other arrays
        array.close()
    with Hold() as held:
        reading = peer.read(view, stream, held)
        del view, made
        gc.collect()
        if golang.device_bytes() < before + COUNT * 8:
            raise AssertionError("Go counts the memory as free while a kernel reads it")
        others = [golang.enqueued_on_device(np.zeros(COUNT, "i8")) for _ in range(4)]
        reused = address in map(golang.address, others)
        held.check("Go, or the peer, waited when the memory was dropped, or others were allocated")
        got = held.opened_during(reading.result)
    equal(got, numbers(first))
    if reused:
        raise AssertionError("Go gave the memory to another array while a kernel read it")


def _arrays(peer, stream, n):
    """Arrays in memory that an allocator has for this stream, such as that of dropped arrays."""
    with peer.on(stream):
        return [peer.array(np.zeros(COUNT, "i8")) for _ in range(n)]


def dropped_while_go_reads(peer, protocol):
    """Go's copy of a peer's array is pending when both have dropped the array: the peer gets it back later."""
    first, stream = next_first(), peer.stream()
    _arrays(peer, stream, 6)  # memory for later ones: a driver may wait for the held work to allocate some
    peer.settle()
    with Hold() as written, Hold() as read:
        array = held_array(peer, first, stream, written)
        if protocol.name == "cai" and not peer.names_stream:
            written.open()
            peer.wait(stream)
        address = peer.address(array)
        taken = protocols.take(protocol, peer, array, stream)
        read.begin(hidden())
        copy = ext.copy_to(taken, golang.CUDA, 0, hidden())
        taken.close()
        owner = weakref.ref(array)
        del taken, array
        peer.unkeep()
        gc.collect()
        gone = owner() is None
        expect_pending(copy, read)
        written.open()  # and the peer's memory is used by nothing but Go's copy
        others = _arrays(peer, stream, 4)
        reused, still_held = address in map(peer.address, others), read.held()
        got = read.opened_during(golang.numbers, copy) if still_held else golang.numbers(copy)
    equal(got, numbers(first))
    if gone and (protocol.name != "dlpack" or peer.tensor_keeps_array):
        raise AssertionError("Go dropped the peer's array while a copy of Go's read it")
    if reused and still_held:
        raise AssertionError("the peer used the memory again while Go's copy read it")
    return None if still_held else "proves less: the peer's allocations wait for all work of the device"


def checks(protocol):
    return [
        ("go waits for a kernel", go_waits),
        ("peer waits for go", peer_waits),
        ("released while a kernel reads", released_while_read),
        ("dropped while go reads", dropped_while_go_reads),
        ("pending through go", through_go),
        ("on the default stream", default_stream),
    ]
