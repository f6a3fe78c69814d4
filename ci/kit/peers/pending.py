"""Work that is pending when an array changes hands: kernels that run, and copies."""

import gc
import itertools
import time
import weakref

import child

import fixture
import golang
import protocols
import work
from compare import equal
from golang import ext

import numpy as np

COUNT = 1 << 12 if child.SIMULATED else 1 << 18
WORK = 100  # milliseconds
LONG = 400  # where several other works must end before
TIMES = 3  # with the order
TRIES = 10  # without it, until the values are wrong

_firsts = itertools.count(1000, 7919)


def next_first():
    """The first of a check's numbers: it must not find those of another one in memory that is used again."""
    return next(_firsts)


def _numbers(first):
    return np.arange(first, first + COUNT)


def _check(got, first, was_pending, what):
    """The values are right, and the work was pending when the array changed hands."""
    equal(got, _numbers(first))
    if not was_pending:
        raise AssertionError(f"proves nothing: {what}")


def _pending(peer, first, stream):
    """An array that a kernel still writes. What was dropped before is freed first: a free that waits for the kernel, on a
    thread of Go, would hold up the calls of this one."""
    golang.settle()
    return peer.pending(COUNT, first, stream, WORK)


def go_waits(peer, protocol):
    """Go takes an array that a kernel still writes, at once, and reads it when it is written."""
    stream, longest = peer.stream(), 0.0
    follows = protocol.name != "cai" or peer.names_stream
    for _ in range(TIMES):
        first = next_first()
        array = _pending(peer, first, stream)
        if not follows:
            peer.wait(stream)
        began = time.monotonic()
        taken = protocols.take(protocol, peer, array, stream)
        longest = max(longest, time.monotonic() - began)
        was_pending = not follows or not ext.ready(taken)
        _check(golang.numbers(taken), first, was_pending, "the work had ended when Go took the array, or Go waited for it")
        del taken, array
        peer.forget()
    return f"taken in {longest * 1e3:.1f} ms" if follows else "the peer names no stream: after a wait"


def go_without_wait(peer, protocol):
    """The same without the order: this must go wrong."""
    fixture.expect_races()
    protocols.skip_unless(not peer.blocks_as(protocol.name), "the peer itself may wait for its work")
    stream = peer.stream()
    for k in range(TRIES):
        first = next_first()
        array = _pending(peer, first, stream)
        taken = protocols.take(protocol, peer, array, stream, ordered=False)
        wrong = (golang.numbers(taken) != _numbers(first)).any()
        peer.wait(stream)
        del taken, array
        peer.forget()
        if wrong:
            return f"wrong in try {k + 1}, as it must be"
    raise AssertionError(f"proves nothing: the values were right {TRIES} times without the order of streams")


def _copied_by_go(first):
    """A copy of Go's behind work on a stream that the peer does not know."""
    source = _numbers(first)
    golang.settle()  # as in _pending
    # Memory for later copies, with other values: a driver may wait for kernels to allocate some.
    golang.on_device(_numbers(next_first())).close()
    hidden = work.stream()
    work.spin(hidden, WORK)
    return golang.copy_on(source, hidden)


def peer_waits(peer, protocol):
    """The peer takes an array to which Go's copy is pending, and reads it at once on a stream of its own."""
    follows, longest = protocol.name != "cai" or peer.follows_stream, 0.0
    for _ in range(TIMES):
        first = next_first()
        made = _copied_by_go(first)
        was_pending = not ext.ready(made)
        if not follows:
            work.proceed()
            made.synchronize()
        stream = peer.stream()
        began = time.monotonic()
        view = protocols.give(protocol, peer, made, stream)
        longest = max(longest, time.monotonic() - began)
        got = peer.read(view, stream, 0).result()
        _check(got, first, was_pending, "Go's copy had ended when the peer took it, or Go waited for it")
        del view, made
        peer.forget()
    return f"given in {longest * 1e3:.1f} ms" if follows else "the peer follows no stream: after a wait"


def peer_without_wait(peer, protocol):
    """The same without the order: this must go wrong."""
    fixture.expect_races()
    copies = protocol.name != "dlpack" and peer.copies_interface
    protocols.skip_unless(not copies, "the peer's import may be a copy with an order of its own")
    for k in range(TRIES):
        first = next_first()
        made = _copied_by_go(first)
        stream = peer.stream()
        view = protocols.give(protocol, peer, made, stream, ordered=False)
        wrong = (peer.read(view, stream, 0).result() != _numbers(first)).any()
        work.synchronize()
        del view, made
        peer.forget()
        if wrong:
            return f"wrong in try {k + 1}, as it must be"
    raise AssertionError(f"proves nothing: the values were right {TRIES} times without the order of streams")


def through_go(peer, protocol):
    """From the peer to Go and back: the second stream waits for the kernel on the first one."""
    protocols.skip_unless(protocol.name != "cai" or (peer.names_stream and peer.follows_stream), "the peer does not follow streams")
    first, one, two = next_first(), peer.stream(), peer.stream()
    array = _pending(peer, first, one)
    taken = protocols.take(protocol, peer, array, one)
    was_pending = not ext.ready(taken)
    view = protocols.give(protocol, peer, taken, two)
    del taken, array
    _check(peer.read(view, two, 0).result(), first, was_pending, "the work had ended when Go took the array")


def default_stream(peer, protocol):
    """The kernel runs on the peer's default stream."""
    protocols.skip_unless(protocol.name != "cai" or peer.names_stream, "the peer names no stream")
    protocols.skip_unless(peer.default is not None, "the peer has no default stream")
    first = next_first()
    array = _pending(peer, first, peer.default)
    taken = protocols.take(protocol, peer, array, peer.default)
    was_pending = not ext.ready(taken)
    _check(golang.numbers(taken), first, was_pending, "the work had ended when Go took the array")


def released_while_read(peer, protocol):
    """A kernel of the peer's still reads Go's memory when both have dropped it: Go frees it later."""
    protocols.skip_unless(protocol.name == "dlpack" or not peer.copies_interface, "the peer's import may be a copy")
    first, stream = next_first(), peer.stream()
    golang.settle()
    before = golang.device_bytes()
    made = golang.on_device(_numbers(first))
    address = golang.address(made)
    view = protocols.give(protocol, peer, made, stream)
    reading = peer.read(view, stream, LONG)
    del view, made
    gc.collect()
    if golang.device_bytes() < before + COUNT * 8:
        raise AssertionError("Go counts the memory as free while a kernel reads it")
    others = [golang.enqueued_on_device(np.zeros(COUNT, "i8")) for _ in range(4)]
    reused = address in map(golang.address, others)
    done = peer.is_done(stream)
    equal(reading.result(), _numbers(first))
    if done:
        raise AssertionError("proves nothing: the kernel had ended before the memory could be used again")
    if reused:
        raise AssertionError("Go gave the memory to another array while a kernel read it")


def _arrays(peer, stream):
    """Arrays in memory that an allocator has for this stream, such as that of dropped arrays."""
    with peer.on(stream):
        return [peer.array(np.zeros(COUNT, "i8")) for _ in range(4)]


def dropped_while_go_reads(peer, protocol):
    """Go's copy of a peer's array is pending when both have dropped the array: the peer gets it back later."""
    first, stream = next_first(), peer.stream()
    _arrays(peer, stream)  # memory for later ones: a driver may wait for kernels to allocate some
    array = _pending(peer, first, stream)
    if protocol.name == "cai" and not peer.names_stream:
        peer.wait(stream)
    address = peer.address(array)
    taken = protocols.take(protocol, peer, array, stream)
    hidden = work.stream()
    work.spin(hidden, LONG)
    copy = ext.copy_to(taken, golang.CUDA, 0, hidden)
    taken.close()
    owner = weakref.ref(array)
    del taken, array
    peer.unkeep()
    gc.collect()
    gone, was_pending = owner() is None, not ext.ready(copy)
    work.proceed()
    others = _arrays(peer, stream)
    reused, still_pending = address in map(peer.address, others), not ext.ready(copy)
    _check(golang.numbers(copy), first, was_pending, "Go's copy had ended before the array was dropped")
    if gone and (protocol.name != "dlpack" or peer.tensor_keeps_array):
        raise AssertionError("Go dropped the peer's array while a copy of Go's read it")
    if reused and still_pending:
        raise AssertionError("the peer used the memory again while Go's copy read it")
    return None if still_pending else "the copy had ended before there were other arrays"


def checks(protocol):
    return [
        ("go waits for a kernel", go_waits),
        ("go without the wait", go_without_wait),
        ("peer waits for go", peer_waits),
        ("peer without the wait", peer_without_wait),
        ("released while a kernel reads", released_while_read),
        ("dropped while go reads", dropped_while_go_reads),
        ("pending through go", through_go),
        ("on the default stream", default_stream),
    ]
