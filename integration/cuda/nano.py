"""nanoarrow as its Python package carries it.

The package can hold, export and describe arrays on a device, but copy none: that
is in its C library, which is part of the extension and is called here. Both see
the same devices.
"""

import ctypes
import errno

import simulator  # noqa: F401, loads the driver that the extension is linked to

import nanoarrow
import nanoarrow._device
import nanoarrow.device

import abi
import capsules

CPU, CUDA, CUDA_HOST = abi.CPU, abi.CUDA, abi.CUDA_HOST

_library = ctypes.CDLL(nanoarrow._device.__file__)
_pointer = ctypes.c_void_p


def _function(name, *arguments, result=ctypes.c_int):
    function = getattr(_library, "PythonPkg" + name)  # its namespace in the package
    function.argtypes, function.restype = arguments, result
    return function


_resolve = _function("ArrowDeviceResolve", ctypes.c_int32, ctypes.c_int64, result=_pointer)
_init_from_schema = _function("ArrowArrayViewInitFromSchema", _pointer, _pointer, _pointer)
_view_init = _function("ArrowDeviceArrayViewInit", _pointer, result=None)
_view_reset = _function("ArrowDeviceArrayViewReset", _pointer, result=None)
_set_array = _function("ArrowDeviceArrayViewSetArrayAsync", _pointer, _pointer, _pointer, _pointer)
_copy = _function("ArrowDeviceArrayViewCopyAsync", _pointer, _pointer, _pointer, _pointer)
_move = _function("ArrowDeviceArrayMoveToDevice", _pointer, _pointer, _pointer)
_basic_stream = _function("ArrowBasicArrayStreamInit", _pointer, _pointer, ctypes.c_int64)
_basic_stream_set = _function("ArrowBasicArrayStreamSetArray", _pointer, ctypes.c_int64, _pointer, result=None)
_basic_device_stream = _function("ArrowDeviceBasicArrayStreamInit", _pointer, _pointer, _pointer)


class _Layout(ctypes.Structure):
    _fields_ = [
        ("buffer_type", ctypes.c_int * 3),
        ("buffer_data_type", ctypes.c_int * 3),
        ("element_size_bits", ctypes.c_int64 * 3),
        ("child_size_elements", ctypes.c_int64),
    ]


class _BufferView(ctypes.Structure):
    _fields_ = [("data", _pointer), ("size_bytes", ctypes.c_int64)]


class _ArrayView(ctypes.Structure):
    _fields_ = [
        ("array", _pointer),
        ("offset", ctypes.c_int64),
        ("length", ctypes.c_int64),
        ("null_count", ctypes.c_int64),
        ("storage_type", ctypes.c_int),
        ("layout", _Layout),
        ("buffer_views", _BufferView * 3),
        ("n_children", ctypes.c_int64),
        ("children", _pointer),
        ("dictionary", _pointer),
        ("union_type_id_map", _pointer),
        ("n_variadic_buffers", ctypes.c_int32),
        ("variadic_buffers", _pointer),
        ("variadic_buffer_sizes", _pointer),
    ]


class _DeviceArrayView(ctypes.Structure):
    _fields_ = [("device", _pointer), ("array_view", _ArrayView), ("sync_event", _pointer)]


class _Device(ctypes.Structure):
    _fields_ = [
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int64),
        ("array_init", _pointer),
        ("array_move", _pointer),
        ("buffer_init", _pointer),
        ("buffer_move", _pointer),
        ("buffer_copy", _pointer),
        ("synchronize_event", ctypes.CFUNCTYPE(ctypes.c_int, _pointer, _pointer, _pointer, _pointer)),
        ("release", _pointer),
        ("private_data", _pointer),
    ]


class Error(Exception):
    """The result of nanoarrow: an errno, and perhaps a text."""

    def __init__(self, code, text=b""):
        super().__init__(f"[{errno.errorcode.get(code, code)}] {text.decode(errors='replace')}")
        self.code = code


def _check(code, text=b""):
    if code:
        raise Error(code, text)


def resolve(device_type, device_id):
    """One of nanoarrow's devices: the address of its struct ArrowDevice."""
    device = _resolve(device_type, device_id)
    if not device:
        raise ValueError(f"nanoarrow has no device of type {device_type} with id {device_id}")
    return device


class _Stream:
    """nanoarrow takes the address of a CUstream."""

    def __init__(self, stream):
        self._stream = None if stream is None else ctypes.c_void_p(stream)

    @property
    def address(self):
        return None if self._stream is None else ctypes.addressof(self._stream)


def wait(device, sync_event, stream=None):
    """Makes a stream wait for the event of an array, or without a stream the caller."""
    error, on = ctypes.create_string_buffer(1024), _Stream(stream)
    _check(_Device.from_address(device).synchronize_event(device, sync_event, on.address, error), error.value)


class View:
    """An ArrowDeviceArrayView: an array whose buffers have sizes. On a device the
    sizes of strings are read from it, on a stream."""

    def __init__(self, source, stream=None):
        self._schema, self._array = source.__arrow_c_device_array__()
        self._view, self._stream = _DeviceArrayView(), _Stream(stream)
        schema = abi.capsule_pointer(self._schema, "arrow_schema")
        array = abi.capsule_pointer(self._array, "arrow_device_array")
        error = ctypes.create_string_buffer(1024)
        _view_init(ctypes.addressof(self._view))
        try:
            _check(_init_from_schema(ctypes.addressof(self._view.array_view), schema, error), error.value)
            _check(_set_array(ctypes.addressof(self._view), array, self._stream.address, error), error.value)
        except BaseException:
            self.close()
            raise

    def close(self):
        _view_reset(ctypes.addressof(self._view))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def sizes(self):
        """Of the buffers of the array itself, in bytes."""
        return [view.size_bytes for view in self._view.array_view.buffer_views]

    def __arrow_c_schema__(self):
        return self._schema

    def copy(self, device, stream):
        """Copies to a device: an object that can be taken once."""
        struct, on = abi.ArrowDeviceArray(), _Stream(stream)
        _check(_copy(ctypes.addressof(self._view), device, ctypes.addressof(struct), on.address))
        return capsules.Produced(nanoarrow.c_schema(self), struct)


def array(obj, schema=None):
    """An array on the CPU, as a device array. nanoarrow moves the array that it wraps:
    a CArray is empty afterwards."""
    return nanoarrow.device.c_device_array(nanoarrow.c_array(obj, schema))


def copy(source, device, stream):
    """Copies a device array to a device on a stream, which may read the source late."""
    # On the CPU sizes are read without a stream, and nanoarrow accepts none.
    with View(source, None if source.device_type_id == CPU else stream) as view:
        return nanoarrow.device.c_device_array(view.copy(device, stream))


def move(source, device):
    """Moves a device array to a device that can address its memory."""
    _, capsule = source.__arrow_c_device_array__()
    struct = abi.ArrowDeviceArray()
    _check(_move(abi.capsule_pointer(capsule, "arrow_device_array"), device, ctypes.addressof(struct)))
    return nanoarrow.device.c_device_array(capsules.Produced(source.schema, struct))


def device_stream(sources, device):
    """A device stream of a plain stream of nanoarrow's, with the arrays of so many
    sources that can be taken: the struct. Their events are lost on the way."""
    plain, stream = abi.ArrowArrayStream(), abi.ArrowDeviceArrayStream()
    taken = [source.__arrow_c_device_array__() for source in sources]
    schema, _ = taken[0]
    _check(_basic_stream(ctypes.addressof(plain), abi.capsule_pointer(schema, "arrow_schema"), len(taken)))
    for i, (_, array) in enumerate(taken):
        _basic_stream_set(ctypes.addressof(plain), i, abi.capsule_pointer(array, "arrow_device_array"))
    _check(_basic_device_stream(ctypes.addressof(stream), ctypes.addressof(plain), device))
    return stream


def sync_event(array):
    """The address of the CUevent of an array, None if it has none."""
    _, capsule = array.__arrow_c_device_array__()
    return abi.ArrowDeviceArray.from_address(abi.capsule_pointer(capsule, "arrow_device_array")).sync_event


def event(array):
    """The CUevent of an array."""
    return ctypes.c_void_p.from_address(sync_event(array)).value


def values(array):
    """The values of a device array on the CPU."""
    return nanoarrow.Array(nanoarrow.c_array(array)).to_pylist()
