"""The protocols, one at a time: an object that has only one of them, with the order of streams or without it."""

import child

import columns
import golang
import work

_aside = []


def aside():
    """A stream without work: to wait for it orders nothing."""
    if not _aside:
        _aside.append(work.stream())
    return _aside[0]


class ByDLPack:
    """An object with DLPack only. instead is a stream to order in place of the consumer's."""

    def __init__(self, source, instead=None):
        self._source, self._instead = source, instead

    def __dlpack_device__(self):
        return self._source.__dlpack_device__()

    def __dlpack__(self, **keywords):
        if self._instead is not None:
            keywords["stream"] = self._instead
        return self._source.__dlpack__(**keywords)


class ByCAI:
    """An object with the CUDA Array Interface only, some entries of which are changed."""

    def __init__(self, source, **changes):
        self._source, self._changes = source, changes

    @property
    def __cuda_array_interface__(self):
        return {**self._source.__cuda_array_interface__, **self._changes}


class Watched:
    """An array of Go's whose work is held. A method that hands it over and waits for the work is an error, so that it is not taken
    for a wait of the consumer. If the consumer will wait, the work is opened soon after it has the array."""

    def __init__(self, source, held, opens):
        self._source, self._held, self._opens, self._handed = source, held, opens, False

    def __getattr__(self, name):
        value = getattr(self._source, name)
        return self._checked(name, value) if name == "__cuda_array_interface__" else value

    def __dlpack__(self, **keywords):
        return self._checked("__dlpack__", self._source.__dlpack__(**keywords))

    def __arrow_c_device_array__(self, **keywords):
        return self._checked("__arrow_c_device_array__", self._source.__arrow_c_device_array__(**keywords))

    def _checked(self, name, value):
        if not (self._handed and self._opens):
            self._held.check(f"Go waited in {name}")
            if self._opens:
                self._held.open_soon()
            self._handed = True
        return value


class DLPack:
    name = "dlpack"

    def into_go(self, peer, array, stream=None, ordered=True):
        """What Go takes of a peer's array, to be taken with the stream as the current one."""
        return ByDLPack(array, None if ordered else aside())

    def into_peer(self, peer, array, stream=None, ordered=True):
        """The peer's array over one of Go's, for the current stream."""
        return peer.from_dlpack(ByDLPack(array, None if ordered else aside()))


class CAI:
    name = "cai"

    def into_go(self, peer, array, stream=None, ordered=True):
        return ByCAI(array) if ordered else ByCAI(array, stream=None)

    def into_peer(self, peer, array, stream=None, ordered=True):
        changes = {} if ordered else {"stream": None}
        if not peer.takes_read_only:
            changes["data"] = (array.__cuda_array_interface__["data"][0], False)
        return peer.from_cai(ByCAI(array, **changes))


class Arrow:
    name = "arrow"

    def into_go(self, peer, array, stream=None, ordered=True):
        handle = peer.handle(stream) if stream is not None and ordered else None
        length, name = len(array), golang.type_name(array.dtype)
        return columns.Column(array, peer.address(array), length, name, handle)

    def into_peer(self, peer, array, stream=None, ordered=True):
        held = columns.Held(array)
        if held.device != (2, 0):
            raise AssertionError(f"on device {held.device}")
        interface = ByCAI(_Memory(held))
        if ordered and stream is not None:
            held.wait(peer.handle(stream))
            interface = ByCAI(_Memory(held), stream=peer.handle(stream))
        return peer.from_cai(interface)


class _Memory:
    """A held array by the CUDA Array Interface."""

    def __init__(self, held):
        self._held = held
        address = held.data + held.offset * held.dtype.itemsize if held.length else 0
        self.__cuda_array_interface__ = {"shape": (held.length,), "typestr": held.dtype.str, "data": (address, False), "version": 3}


ALL = {p.name: p for p in (DLPack(), CAI(), Arrow())}


def of(peer):
    return [ALL[name] for name in peer.protocols]


def take(protocol, peer, array, stream=None, ordered=True):
    """An array of Go's over a peer's."""
    with peer.on(stream):
        return golang.ext.echo_array(protocol.into_go(peer, array, stream, ordered))


def give(protocol, peer, array, stream=None, ordered=True, held=None, opens=False):
    """A peer's array over one of Go's, whose work may be held. Some peers wait here: for them it is opened."""
    source = array if held is None else Watched(array, held, opens)
    with peer.on(stream):
        return protocol.into_peer(peer, source, stream, ordered)


def skip_unless(condition, reason):
    if not condition:
        raise child.Skip(reason)
