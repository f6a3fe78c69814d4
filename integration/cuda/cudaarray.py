"""The CUDA array interface of Go's arrays, and arrays that Go takes by it."""

import json
import weakref

import golib


class Mask:
    """A mask is an object with an interface of its own."""

    def __init__(self, interface):
        self.__cuda_array_interface__ = interface


def _dict(interface):
    interface["shape"] = tuple(interface["shape"])
    interface["data"] = tuple(interface["data"])
    if interface.get("mask") is not None:
        interface["mask"] = Mask(_dict(interface["mask"]))
    return interface


class Exported:
    """An array of Go's as consumers take it. It holds the array until it is collected."""

    def __init__(self, made, stream=0, bitmap=False, writable=False):
        self._made = made.slice(0, len(made.object))
        if stream:  # on this thread, of which the per-thread default stream is
            interface = golib.ext._library.ask(".cuda_array", made.object, stream)
        else:
            interface = json.loads(golib.ext.export_cuda_array(made.object, bitmap, writable))
        self.__cuda_array_interface__ = _dict(interface)


class _Borrowed:
    """An object that Go borrows, and drops when it has released the memory."""

    def __init__(self, source):
        self._source, self.__cuda_array_interface__ = source, source.__cuda_array_interface__


_borrowed = []  # references to them


def end():
    """Checks that Go has dropped what it borrowed."""
    assert [borrowed for borrowed in _borrowed if borrowed()] == []
    _borrowed.clear()


def taken(source):
    """An array of Go's over the memory of an object, and a function that reports whether Go has released it."""
    borrowed = _Borrowed(source)
    released = weakref.ref(borrowed)
    _borrowed.append(released)
    return golib.GoArray(golib.ext.echo_array(borrowed)), lambda: released() is None
