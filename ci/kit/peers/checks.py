"""The checks of a peer, in the order of their value."""

import functools

import lifetimes
import pending
import protocols
import values


def of(peer):
    """Pairs of a name and a function."""
    own = getattr(peer, "checks", None)
    if own is not None:
        return [(f"{peer.name}.{name}", check) for name, check in own()]
    listed = []
    for group in (pending, lifetimes, values):
        for protocol in protocols.of(peer):
            for name, check in group.checks(protocol):
                listed.append((f"{peer.name}.{protocol.name}.{name}", functools.partial(check, peer, protocol)))
    return listed
