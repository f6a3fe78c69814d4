"""Types, places and shapes, without pending work."""

import gc
import weakref

import child

import golang
import protocols
import tensors
from compare import equal, same
from golang import ext

import numpy as np


def _sample(name):
    return np.arange(1, 101).astype(name)


def _array(peer, values):
    """A peer's array, None for a type that it lacks."""
    try:
        return peer.array(values)
    except (TypeError, NotImplementedError, ValueError):
        return None


def _each(peer, check):
    """Makes a check for every type that the peer has, and returns a note of the others."""
    missing, failed = [], []
    for name in peer.types:
        array = _array(peer, _sample(name))
        if array is None:
            missing.append(name)
            continue
        try:
            check(name, array)
        except Exception as e:
            failed.append(f"{name}: {child.first_line(e)}")
        del array
    if failed:
        raise AssertionError("; ".join(failed))
    return f"without {', '.join(missing)}" if missing else None


def _read(peer, view):
    return peer.read(view, peer.stream()).result()


def into_go(peer, protocol):
    def check(name, array):
        want = _sample(name)
        taken = protocols.take(protocol, peer, array)
        same(taken.device, "cuda:0", "device")
        same(golang.address(taken), peer.address(array), "address")
        equal(golang.numbers(taken), want)
        part = taken[10:20]
        same(golang.address(part), peer.address(array) + 10 * want.itemsize, "address of a slice")
        equal(golang.numbers(part), want[10:20])

    return _each(peer, check)


def into_peer(peer, protocol):
    def check(name, _):
        want = _sample(name)
        made = golang.on_device(want)
        view = protocols.give(protocol, peer, made)
        if not peer.copies(protocol.name):
            same(peer.address(view), golang.address(made), "address")
        equal(_read(peer, view), want)
        if peer.any_alignment:
            equal(_read(peer, protocols.give(protocol, peer, made[10:20])), want[10:20])

    return _each(peer, check)


def back(peer, protocol):
    """From the peer through Go to the peer: the same memory."""

    def check(name, array):
        view = protocols.give(protocol, peer, protocols.take(protocol, peer, array))
        if not peer.copies(protocol.name):
            same(peer.address(view), peer.address(array), "address")
        equal(_read(peer, view), _sample(name))

    return _each(peer, check)


def empty(peer, protocol):
    taken = protocols.take(protocol, peer, peer.array(np.arange(0)))
    same(len(taken), 0, "length")
    view = protocols.give(protocol, peer, golang.on_device(np.arange(5))[2:2])
    same(_read(peer, view).shape, (0,), "shape")


def matrices(peer, protocol):
    want = np.arange(24, dtype="f4").reshape(4, 2, 3)
    taken = protocols.take(protocol, peer, peer.array(want))
    same(len(taken), 4, "rows")
    view = protocols.give(protocol, peer, taken)
    same(tuple(view.shape), (4, 2, 3), "shape")
    equal(_read(peer, view), want)


def refusals(peer, protocol):
    """Strides and complex numbers, with the reason."""
    strided = peer.every_other(peer.array(np.arange(10)))
    if strided is not None:
        _refused("stride", lambda: protocols.take(protocol, peer, strided))
    array = _array(peer, np.arange(3).astype("c8"))
    if array is not None:
        _refused("complex", lambda: protocols.take(protocol, peer, array))


def _refused(word, make):
    try:
        make()
    except (NotImplementedError, ValueError) as e:
        if word not in str(e):
            raise AssertionError(f"refused, but not because of {word}: {e}") from None
        return
    raise AssertionError(f"Go took what has {word}")


def bools(peer, protocol):
    """A byte each: not Arrow's bits. By the CUDA Array Interface they come in as uint8; by DLPack they are refused."""
    array = _array(peer, np.array([True, False, True]))
    protocols.skip_unless(array is not None, "the peer has none")
    try:
        taken = protocols.take(protocol, peer, array)
    except NotImplementedError as e:
        same("bool" in str(e), True, f"the reason ({e}) names bool:")
        same(protocol.name, "dlpack", "refused by")
        return "refused"
    same(taken.type, "uint8", "type")
    equal(golang.numbers(taken), np.array([1, 0, 1], "u1"))
    return "as uint8"


_DOCUMENTED = ("cupy", "torch", "numba")  # in docs/cudaarray.md: what becomes of read-only memory


def read_only(peer, protocol):
    """Go's arrays are read-only where the protocol can say so; what the peer makes of it is noted."""
    made = golang.on_device(np.arange(10))
    if protocol.name == "dlpack":
        versioned = tensors.Taken(made.__dlpack__(stream=1, max_version=(1, 0)))
        same(versioned.flags & tensors.READ_ONLY, tensors.READ_ONLY, "the flag")
        del versioned
        make = lambda: peer.from_dlpack(protocols.ByDLPack(made))  # noqa: E731
    else:
        same(made.__cuda_array_interface__["data"][1], True, "the flag")
        make = lambda: peer.from_cai(protocols.ByCAI(made))  # noqa: E731
    try:
        make()
        note, took = "the peer takes it", True
    except Exception as e:
        note, took = f"the peer refuses: {child.first_line(e)}", False
    gc.collect()
    if protocol.name == "cai" and peer.name in _DOCUMENTED:
        same(took, peer.takes_read_only, "documented: the peer takes read-only memory:")
    return note


def closed(peer, protocol):
    """Go keeps nothing of arrays that it took and closed."""
    array = peer.array(np.arange(10))
    carriers = []
    for _ in range(3):
        carrier = protocol.into_go(peer, array)
        carriers.append(weakref.ref(carrier))
        ext.echo_array(carrier).close()
    del carrier
    golang.settle()
    gc.collect()
    kept = [ref() for ref in carriers]
    same(kept, [None] * 3, "kept")


# By the Arrow interface, columns have one dimension, no strides, bits for bools and no flag.
_OF_TENSORS = [("matrices", matrices), ("refusals", refusals), ("bools", bools), ("read-only", read_only)]
_OF_ALL = [
    ("types into go", into_go),
    ("types into the peer", into_peer),
    ("there and back", back),
    ("empty", empty),
    ("closed at once", closed),
]


def checks(protocol):
    return _OF_ALL if protocol.name == "arrow" else _OF_ALL + _OF_TENSORS
