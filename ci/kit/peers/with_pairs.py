"""All libraries in one process: the pending array of each goes through Go to each of the others."""

import importlib
import itertools

import child
import compare
import pending
import peer
import protocols
from hold import Hold

NAMES = ["cupy", "torch", "numba", "jax", "driver"]


class Peer(peer.Peer):
    name = "pairs"

    def __init__(self):
        super().__init__()
        self._peers = {}
        for name in NAMES:
            try:
                self._peers[name] = importlib.import_module("with_" + name).Peer()
            except (ImportError, child.Skip):
                pass  # that peer's own process says so
        if len(self._peers) < 2:
            raise child.Skip("only the driver is here")
        self.version = ", ".join(self._peers)

    def open(self):
        for name, one in list(self._peers.items()):
            try:
                one.open()
            except Exception as e:
                print(f"pairs: without {name}: {type(e).__name__}: {child.first_line(e)}")
                del self._peers[name]

    def forget(self):
        for one in self._peers.values():
            one.forget()

    def settle(self):
        for one in self._peers.values():
            one.settle()

    def checks(self):
        for a, b in itertools.permutations(self._peers.values(), 2):
            source, target = _ordered(a, "names_stream"), _ordered(b, "follows_stream")
            yield f"{a.name} by {source.name}, {b.name} by {target.name}", lambda a=a, b=b, s=source, t=target: _pass_on(a, s, b, t)


def _ordered(one, of_interface):
    """The first protocol of a peer that carries the order of streams."""
    listed = [p for p in protocols.of(one) if p.name != "cai" or getattr(one, of_interface)]
    return listed[0]


def _pass_on(a, source, b, target):
    """The kernel of one library still writes when the other takes the array from Go and reads it. The first one drops it."""
    first, stream = pending.next_first(), a.stream()
    with Hold() as held:
        taken = protocols.take(source, a, pending.held_array(a, first, stream, held), stream)
        pending.expect_pending(taken, held)
        got, _ = pending.read_by_peer(b, target, taken, b.stream(), held)
    compare.equal(got, pending.numbers(first))
