"""The checks of a peer, in the order of their value."""

import functools
import os
import re

import lifetimes
import pending
import protocols
import unordered
import values


def of(peer):
    """Pairs of a name and a function: of the checks that have no result yet."""
    done = _done()
    return [(name, check) for name, check in _all(peer) if _short(name) not in done]


def _done():
    path = os.environ.get("KIT_DONE")
    if not path:
        return set()
    with open(path) as f:
        return set(f.read().splitlines())


def _short(name):
    """A name as the kit notes it."""
    return re.split(r": | \(", name)[0].removesuffix(":")


def _all(peer):
    own = getattr(peer, "checks", None)
    if own is not None:
        return [(f"{peer.name}.{name}", check) for name, check in own()]
    listed = []
    for group in (pending, unordered, lifetimes, values):
        for protocol in protocols.of(peer):
            for name, check in group.checks(protocol):
                listed.append((f"{peer.name}.{protocol.name}.{name}", functools.partial(check, peer, protocol)))
    return listed
