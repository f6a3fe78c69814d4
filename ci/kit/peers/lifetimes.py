"""Who keeps whose memory, and how often it is freed."""

import gc

import golang
import protocols
from compare import equal

import numpy as np

COUNT = 50_000


def _overwrite(peer):
    """Arrays of the size in question, where memory that was freed too early would be."""
    return [peer.array(np.full(COUNT, 77)) for _ in range(4)] + [golang.on_device(np.full(COUNT, 78)) for _ in range(4)]


def go_keeps(peer, protocol):
    """The peer drops its array; Go has it, and a slice of it."""
    array = peer.array(np.arange(COUNT))
    part = protocols.take(protocol, peer, array)[10 : COUNT - 10]
    del array
    gc.collect()
    others = _overwrite(peer)
    equal(golang.numbers(part), np.arange(10, COUNT - 10))
    del others


def peer_keeps(peer, protocol):
    """Go drops its array; the peer has it."""
    protocols.skip_unless(protocol.name == "dlpack" or peer.keeps_owner, "the peer does not keep the owner")
    made = golang.on_device(np.arange(COUNT))
    view = protocols.give(protocol, peer, made)
    if protocol.name == "dlpack":
        made.close()  # a tensor holds the memory on its own
    del made
    gc.collect()
    golang.settle()
    others = _overwrite(peer)
    equal(peer.read(view, peer.stream()).result(), np.arange(COUNT))
    del others


def freed_once(peer, protocol):
    """The peer's memory is in use as long as Go has the array, and free afterwards."""

    def used():
        gc.collect()
        peer.forget()
        golang.settle()
        gc.collect()
        return peer.used()

    def pass_on():
        array = peer.array(np.arange(COUNT))
        taken = protocols.take(protocol, peer, array)
        del array
        return taken

    pass_on().close()  # what the peer keeps from the first time on
    before = used()
    protocols.skip_unless(before is not None, "the peer does not count its memory")
    for _ in range(3):
        taken = pass_on()
        during = used()
        taken.close()
        if during < before + COUNT * 8:
            raise AssertionError(f"{during - before} bytes in use while Go has {COUNT * 8}")
        if used() != before:
            raise AssertionError(f"{used() - before} bytes in use after the release")


def checks(protocol):
    return [("go keeps the peer's memory", go_keeps), ("peer keeps go's memory", peer_keeps), ("freed once", freed_once)]
