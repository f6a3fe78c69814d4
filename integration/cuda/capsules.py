"""The Arrow PyCapsule interface in Python: producers that are not nanoarrow."""

import ctypes

import abi

# A capsule that is being destroyed has no references left: its destructor must
# not make an object of it.
_pointer_type = ctypes.PYFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p)
_dying_pointer = _pointer_type(("PyCapsule_GetPointer", ctypes.pythonapi))
_owned = {}  # structs in capsules, by address


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _destroy(capsule):
    struct = _owned.pop(_dying_pointer(capsule, b"arrow_device_array"))
    abi.release(struct)


def device_array(struct):
    """A capsule that takes an abi.ArrowDeviceArray, and releases it at the end unless a
    consumer moved it."""
    address = ctypes.addressof(struct)
    _owned[address] = struct
    return abi.new_capsule(address, "arrow_device_array", _destroy)


class Produced:
    """An array on a device that can be taken once, from a producer
    that Go knows nothing of: two capsules and no more."""

    def __init__(self, schema, struct):
        self._schema = schema  # any object that has __arrow_c_schema__
        self._capsule = device_array(struct)

    @property
    def struct(self):
        return abi.ArrowDeviceArray.from_address(abi.capsule_pointer(self._capsule, "arrow_device_array"))

    def __arrow_c_device_array__(self, requested_schema=None):
        return self._schema.__arrow_c_schema__(), self._capsule


class Tree:
    """The memory of an array, and of its children."""

    def __init__(self, length, *buffers, null_count=0, offset=0, children=(), dictionary=None, keep=None):
        self.length, self.null_count, self.offset = length, null_count, offset
        self.buffers = buffers  # addresses, or None
        self.children, self.dictionary = children, dictionary
        self.keep = keep  # lives until the release


_exported = {}  # by the address that is in private_data


@ctypes.CFUNCTYPE(None, ctypes.POINTER(abi.ArrowArray))
def _release(array):
    a = array.contents
    for i in range(a.n_children):
        abi.release(a.children[i].contents)
    if a.dictionary:
        abi.release(a.dictionary.contents)
    a.release = None
    del _exported[a.private_data]


def _fill(array, tree):
    array.length, array.null_count, array.offset = tree.length, tree.null_count, tree.offset
    buffers = (ctypes.c_void_p * len(tree.buffers))(*tree.buffers)
    children = [abi.ArrowArray() for _ in tree.children]
    for child, part in zip(children, tree.children):
        _fill(child, part)
    pointers = (ctypes.POINTER(abi.ArrowArray) * len(children))(*map(ctypes.pointer, children))
    array.n_buffers, array.buffers = len(buffers), buffers
    array.n_children, array.children = len(children), pointers
    dictionary = None
    if tree.dictionary is not None:
        dictionary = abi.ArrowArray()
        _fill(dictionary, tree.dictionary)
        array.dictionary = ctypes.pointer(dictionary)
    array.private_data = ctypes.addressof(buffers)
    _exported[array.private_data] = (buffers, pointers, children, dictionary, tree)
    array.release = ctypes.cast(_release, ctypes.c_void_p).value


def exported():
    """How many arrays that export() filled are not released, children included."""
    return len(_exported)


def export(tree, device_type=abi.CPU, device_id=-1, sync_event=None):
    """A device array over memory of another owner. sync_event is the address of a
    CUevent, as in the interface."""
    struct = abi.ArrowDeviceArray()
    _fill(struct.array, tree)
    struct.device_type, struct.device_id, struct.sync_event = device_type, device_id, sync_event
    return struct
