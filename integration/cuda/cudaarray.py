"""The CUDA array interface of Go's arrays, and arrays that Go takes by it."""

import itertools
import json

import golib
from golibrary import _ask, _create

_tokens = itertools.count(1)
_owners = {}  # the objects that Go borrows, until it has released them


class Mask:
    """A mask is an object with an interface of its own."""

    def __init__(self, interface):
        self.__cuda_array_interface__ = interface


def _dict(interface):
    interface["shape"] = tuple(interface["shape"])
    interface["data"] = tuple(interface["data"])
    if interface["mask"] is not None:
        interface["mask"] = Mask(_dict(interface["mask"]))
    return interface


class Exported:
    """An array of Go's as consumers take it. It holds the array until it is collected."""

    def __init__(self, made, stream=0, bitmap=False, writable=False):
        self._made = golib.GoArray(_create("slice", made.handle, 0, made.describe()["length"]))
        try:
            self.__cuda_array_interface__ = _dict(_ask("export_cuda_array", self._made.handle, stream, bitmap, writable))
        except BaseException:
            self._made.release()
            raise

    def __del__(self):
        self._made.release()


def _plain(interface):
    """Without Python's objects."""
    plain = {name: interface.get(name) for name in ("shape", "typestr", "data", "version", "strides", "stream", "mask")}
    if plain["mask"] is not None:
        plain["mask"] = _plain(plain["mask"].__cuda_array_interface__)
    return plain


def releases(token):
    """How often Go has released the memory of an object that it took."""
    return _ask("cuda_array_releases", token)


def end():
    """Lets go of the objects that Go has taken, each of which it must have released once."""
    counts = [releases(token) for token in _owners]
    _owners.clear()
    assert counts == [1] * len(counts)


def taken(source):
    """An array of Go's over the memory of an object, and a function that tells how often Go released it."""
    token = next(_tokens)
    _owners[token] = source
    text = json.dumps(_plain(source.__cuda_array_interface__))
    return golib.GoArray(_create("import_cuda_array", text.encode(), token)), lambda: releases(token)
