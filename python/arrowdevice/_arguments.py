"""Arguments of a library's functions: the protocols that an object is asked for, by declared type."""

from __future__ import annotations

import re
import threading

from . import _capsules, _sources
from ._errors import Refusal, annotate
from ._objects import Object
from ._structs import CUDA, CUDA_MANAGED, ROCM, ArrowArrayStream, ArrowDeviceArrayStream, is_column
from ._values import (
    NONE,
    dict_head,
    encode,
    encode_address,
    encode_float,
    encode_key,
    encode_signed,
    form_head,
    list_head,
)

_ARRAY_NAMES = ("arrow_schema", "arrow_device_array")
_PLAIN_ARRAY_NAMES = ("arrow_schema", "arrow_array")

_CUDA_ARRAY_KEYS = ("shape", "typestr", "data", "version", "strides", "descr", "mask", "stream")

# The number of the default stream in __dlpack__, by device type; __dlpack__ has no streams for the others.
_DEFAULT_STREAMS = {CUDA: 1, CUDA_MANAGED: 1, ROCM: 0}


class Transfer:
    """What the arguments of one call hand over: Go takes all of it when the call begins. Arguments may be converted in
    another thread, which then abandons the transfer itself if its call has ended by then."""

    def __init__(self, library):
        self.library = library
        self._lock, self._converting, self._abandoned = threading.Lock(), False, False
        self.origins = []
        self._capsules = []
        self._renamed = []
        self._sources = []
        self._owners = []
        self._increased = 0

    def keep(self, capsules):
        """Keeps capsules until the transfer ends."""
        self._capsules.append(capsules)

    def rename(self, capsule, name):
        """Notes that a capsule is consumed with the call."""
        self._renamed.append((capsule, name))

    def source(self, iterable):
        """The address of a stream of an iterable's batches."""
        origin = _sources.Origin()
        self.origins.append(origin)
        source = _sources.Source(iterable, origin, self.library.functions)
        self._sources.append(source)
        source.open()
        return source.address

    def owner(self, value):
        """The address of an object, with a reference of the call's own."""
        self._owners.append(value)
        return id(value)

    def commit(self):
        """Gives up what Go is about to take."""
        for capsule, name in self._renamed:
            _capsules.rename(capsule, "used_" + name)
        for owner in self._owners:
            _capsules.increase(owner)
            self._increased += 1

    def elsewhere(self, convert):
        """The result of convert(), which runs in another thread than the call."""
        self._converting = True
        try:
            return convert()
        finally:
            with self._lock:
                self._converting, abandoned = False, self._abandoned
            if abandoned:
                self.abandon()

    def abandon(self):
        """Takes everything back: Go was not called."""
        with self._lock:
            self._abandoned = True
            if self._converting:
                return
        for capsule, name in self._renamed:
            _capsules.rename(capsule, name)
        for owner in self._owners[: self._increased]:
            _capsules.decrease(owner)
        self._increased = 0
        for source in self._sources:
            source.abandon()


class Refused(Exception):
    """An argument cannot be converted: error is to be raised."""

    def __init__(self, error):
        super().__init__(error)
        self.error = error


def encode_arguments(transfer, function, parameters, values):
    """The encoded arguments of a call. parameters are pairs of a name and a converter."""
    encoded = []
    for (name, convert), value in zip(parameters, values):
        try:
            encoded.append(convert(value, transfer))
        except Refusal as refusal:
            raise Refused(refusal.error(function, name)) from None
        except Exception as error:
            annotate(error, f"{function}: argument {name}")
            raise
    return encoded


# The protocols. Each returns the encoded argument.


def _own(value, transfer):
    """An object of the same library; None for all others."""
    if not isinstance(value, Object) or value.library is not transfer.library:
        return None
    if value.closed:
        raise Refusal(ValueError, f"the {type(value).__name__} is closed")
    transfer.origins.extend(value.origins)
    return value.encoded()


def _schema(value, transfer):
    capsule = value.__arrow_c_schema__()
    transfer.keep(capsule)
    return form_head(9) + encode_address(_capsules.pointer(capsule, "arrow_schema", "__arrow_c_schema__"))


def _pair(form, capsules, names, method, transfer):
    addresses = _capsules.pointers(capsules, names, method)
    transfer.keep(capsules)
    return form_head(form) + b"".join(map(encode_address, addresses))


def _device_array(value, transfer):
    return _pair(2, value.__arrow_c_device_array__(), _ARRAY_NAMES, "__arrow_c_device_array__", transfer)


def _array(value, transfer):
    return _pair(3, value.__arrow_c_array__(), _PLAIN_ARRAY_NAMES, "__arrow_c_array__", transfer)


def _device_stream(value, transfer):
    return _pair(4, (value.__arrow_c_device_stream__(),), ("arrow_device_array_stream",), "__arrow_c_device_stream__", transfer)


def _stream(value, transfer):
    return _pair(5, (value.__arrow_c_stream__(),), ("arrow_array_stream",), "__arrow_c_stream__", transfer)


def _dlpack(value, transfer):
    device_type = int(value.__dlpack_device__()[0])
    stream = _DEFAULT_STREAMS.get(device_type)
    keywords = {} if stream is None else {"stream": stream}
    try:
        capsule = value.__dlpack__(max_version=(1, 0), **keywords)
    except TypeError:  # a producer of before DLPack 1.0
        capsule = value.__dlpack__(**keywords)
    versioned = _capsules.has_name(capsule, "dltensor_versioned")
    name = "dltensor_versioned" if versioned else "dltensor"
    address = _capsules.pointer(capsule, name, "__dlpack__")
    transfer.keep(capsule)
    transfer.rename(capsule, name)
    return form_head(6 if versioned else 7) + encode_address(address) + encode_signed(-1 if stream is None else stream)


def _cuda_array(value, transfer):
    interface = value.__cuda_array_interface__
    if not isinstance(interface, dict):
        raise Refusal(TypeError, f"__cuda_array_interface__ is {type(interface).__name__}, not dict")
    interface, owners = dict(interface), [value, interface]
    mask = interface.get("mask")
    if mask is not None:
        interface["mask"] = _known(mask.__cuda_array_interface__)
        owners.append(mask)
    return form_head(8) + encode_address(transfer.owner(owners)) + encode(_known(interface))


def _known(interface):
    """What the CUDA Array Interface defines; a producer may add what it likes."""
    return {key: interface[key] for key in _CUDA_ARRAY_KEYS if key in interface}


_PROTOCOLS = {
    "__arrow_c_schema__": _schema,
    "__arrow_c_device_array__": _device_array,
    "__arrow_c_device_stream__": _device_stream,
    "__arrow_c_array__": _array,
    "__arrow_c_stream__": _stream,
    "__dlpack__": _dlpack,
    "__cuda_array_interface__": _cuda_array,
}


def _asker(*methods, converters=_PROTOCOLS):
    """A function that converts by the first of the protocols that an object has; None for an object
    that has none."""
    protocols = [(method, converters[method]) for method in methods]

    def ask(value, transfer):
        own = _own(value, transfer)
        if own is not None or isinstance(value, type):
            return own
        for method, convert in protocols:
            if hasattr(value, method):
                return convert(value, transfer)
        return None

    return ask


_READER = ("__arrow_c_device_stream__", "__arrow_c_device_array__", "__arrow_c_stream__", "__arrow_c_array__")
_BATCH = ("__arrow_c_device_array__", "__arrow_c_device_stream__", "__arrow_c_array__", "__arrow_c_stream__")
_COLUMN = ("__arrow_c_device_array__", "__arrow_c_array__", "__arrow_c_stream__", "__dlpack__", "__cuda_array_interface__")
_ANY = ("__arrow_c_device_array__", "__arrow_c_device_stream__", "__arrow_c_array__", "__arrow_c_stream__", "__dlpack__")


def _arrow(what, methods):
    """The converter of a type that holds Arrow data."""
    ask = _asker(*methods)

    def convert(value, transfer):
        encoded = ask(value, transfer)
        if encoded is None:
            raise Refusal(TypeError, f"{what} is wanted, not {_name(value)}: it has none of {', '.join(methods)}")
        return encoded

    return convert


def _name(value):
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


_ask_reader = _asker(*_READER)


def _reader(value, transfer):
    encoded = _ask_reader(value, transfer)
    if encoded is not None:
        return encoded
    return form_head(4) + encode_address(transfer.source(_iterable(value)))


def _iterable(value):
    """An iterable of batches that is no container of other things."""
    if not isinstance(value, (str, bytes, bytearray, memoryview, dict, type)):
        if hasattr(value, "__iter__") and getattr(value, "shape", None) != ():
            return value
        if callable(value):
            return iter(value, None)
    raise Refusal(
        TypeError,
        f"RecordReader is wanted, not {_name(value)}: it has none of {', '.join(_READER)}, and is no iterable or callable",
    )


_OF_COLUMN = 0x80  # in the form of a stream: it has the chunks of a column


def _of_any(convert, stream_type):
    """The converter of a stream of batches or of the chunks of a column: its schema says which."""

    def convert_any(value, transfer):
        encoded = convert(value, transfer)
        stream = stream_type.from_address(int.from_bytes(encoded[2:], "little"))
        return form_head(encoded[1] | _OF_COLUMN) + encoded[2:] if is_column(stream) else encoded

    return convert_any


_ANY_STREAMS = {
    "__arrow_c_device_stream__": _of_any(_device_stream, ArrowDeviceArrayStream),
    "__arrow_c_stream__": _of_any(_stream, ArrowArrayStream),
}
_ask_any = _asker(*_ANY, "__cuda_array_interface__", converters={**_PROTOCOLS, **_ANY_STREAMS})


def _any(value, transfer):
    if isinstance(value, (list, tuple)):
        return _list_of(_any)(value, transfer)
    if isinstance(value, dict):
        return _dict_of(_any)(value, transfer)
    if value is None or isinstance(value, (str, bool, int, float, bytes, bytearray, memoryview)):
        return encode(value)
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return encode(value)  # a scalar of NumPy
    encoded = _ask_any(value, transfer)
    if encoded is None and hasattr(value, "__arrow_c_schema__") and not isinstance(value, type):
        encoded = _schema(value, transfer)
    return encode(value) if encoded is None else encoded


def _list_of(element):
    def convert(value, transfer):
        if not isinstance(value, (list, tuple)):
            raise Refusal(TypeError, f"list is wanted, not {_name(value)}")
        return list_head(len(value)) + b"".join(_inside(f"[{i}]", element, item, transfer) for i, item in enumerate(value))

    return convert


def _dict_of(element):
    def convert(value, transfer):
        if not isinstance(value, dict):
            raise Refusal(TypeError, f"dict is wanted, not {_name(value)}")
        pairs = [encode_key(key) + _inside(f"[{key!r}]", element, item, transfer) for key, item in value.items()]
        return dict_head(len(pairs)) + b"".join(pairs)

    return convert


def may_wait(annotation, value):
    """Reports whether converting an argument may run code of the caller's that takes long: that of a source."""
    if "RecordReader" not in annotation or isinstance(value, Object):
        return False
    return isinstance(value, (list, tuple, dict)) or not any(hasattr(value, method) for method in _READER)


def _inside(path, convert, value, transfer):
    try:
        return convert(value, transfer)
    except Refusal as refusal:
        raise refusal.inside(path) from None


def _float(value, transfer):
    """Other numbers are asked for a float. Go refuses a bool, also NumPy's."""
    if getattr(value, "shape", ()) != ():
        raise Refusal(TypeError, f"float is wanted, not {_name(value)}")
    if isinstance(value, (str, bool, int, float)) or not hasattr(value, "__float__") or isinstance(_item(value), bool):
        return encode(value)
    return encode_float(value.__float__())


def _item(value):
    """What a scalar of NumPy holds; other values as they are."""
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value


def _scalar(value, transfer):
    return encode(value)


_CONVERTERS = {
    "RecordReader": _reader,
    "RecordBatch": _arrow("RecordBatch", _BATCH),
    "Array": _arrow("Array", _COLUMN),
    "Schema": _arrow("Schema", ("__arrow_c_schema__",)),
    "Any": _any,
    "float": _float,
}


def converter(annotation):
    """The converter of a declared type: a function of a value and a transfer. Go checks what has none."""
    if annotation.endswith(" | None"):
        present = converter(annotation[: -len(" | None")])
        return lambda value, transfer: NONE if value is None else present(value, transfer)
    nested = re.fullmatch(r"(list\[|dict\[str, )(.*)\]", annotation)
    if nested is not None:
        element = converter(nested[2])
        return _list_of(element) if nested[1] == "list[" else _dict_of(element)
    return _CONVERTERS.get(annotation, _scalar)
