"""The structs of the C data and device data interfaces, made and read by ctypes.

A release callback is machine code (release.py), which puts a cell on a list and wakes collect(), which does the rest.
"""

from __future__ import annotations

import ctypes
import sys

from . import release as releases
from .schema import MAX_DEPTH, Field, layout_of
from .worker import releaser, worker

_void, _int64 = ctypes.c_void_p, ctypes.c_int64


class ArrowSchema(ctypes.Structure):
    _fields_ = [
        ("format", _void), ("name", _void), ("metadata", _void), ("flags", _int64), ("n_children", _int64), ("children", _void),
        ("dictionary", _void), ("release", _void), ("private_data", _void),
    ]  # fmt: skip


class ArrowArray(ctypes.Structure):
    _fields_ = [
        ("length", _int64), ("null_count", _int64), ("offset", _int64), ("n_buffers", _int64), ("n_children", _int64),
        ("buffers", _void), ("children", _void), ("dictionary", _void), ("release", _void), ("private_data", _void),
    ]  # fmt: skip


class ArrowDeviceArray(ctypes.Structure):
    _fields_ = [
        ("array", ArrowArray), ("device_id", _int64), ("device_type", ctypes.c_int32), ("sync_event", _void),
        ("reserved", _int64 * 3),
    ]  # fmt: skip


class ArrowArrayStream(ctypes.Structure):
    _fields_ = [(name, _void) for name in ("get_schema", "get_next", "get_last_error", "release", "private_data")]


RELEASE = ctypes.CFUNCTYPE(None, _void)
_GET = ctypes.CFUNCTYPE(ctypes.c_int, _void, _void)
_GET_LAST_ERROR = ctypes.CFUNCTYPE(ctypes.c_char_p, _void)

# Prototypes of this module's own: other modules may declare other types for the functions of ctypes.pythonapi.
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, _void, ctypes.c_char_p, _void)(("PyCapsule_New", ctypes.pythonapi))
_get_pointer = ctypes.PYFUNCTYPE(_void, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))

_ZEROS = (ctypes.c_char * 8)()

_live: dict[int, _Export] = {}  # the structs that were not released, by the addresses of their cells


class _Export:
    """What an exported struct keeps alive."""

    __slots__ = ("cell", "released", "kept", "below")

    def __init__(self, released, kept, below):
        self.cell, self.released, self.kept, self.below = releases.cell(), released, kept, below

    def key(self):
        return ctypes.addressof(self.cell)


def exported():
    """The number of structs that were not released."""
    return len(_live)


def prepare():
    """Makes what exports need, or raises NotSupported or OSError."""
    releases.prepare(ArrowSchema, ArrowArray)


def collect():
    """Ends the structs that consumers have released. It is a thread, which does not return."""
    while True:
        for key in releases.wait():
            try:
                _end(key, _live.pop(key))
            except Exception:  # for example, no memory is left: the others go on
                sys.excepthook(*sys.exc_info())


def _end(key, export):
    """Releases what a struct has kept alive, and those below it that no consumer has moved."""
    for struct in export.below:
        release(struct)
    export.released(key)


def _fill(struct, retain, released, kept, below, has_dictionary):
    """Completes a struct: it owns those below it, of which the last may be the dictionary. retain(key) is called now, and
    released(key) at the end, which an error is as well."""
    key = None
    try:
        pointers = (_void * max(len(below), 1))(*(ctypes.addressof(c) for c in below))
        struct.n_children, struct.children = len(below) - has_dictionary, ctypes.addressof(pointers)
        struct.dictionary = pointers[-1] if has_dictionary else None
        export = _Export(released, (kept, pointers), below)
        key = struct.private_data = export.key()
        _live[key] = export
        struct.release = releases.callback(type(struct))
        retain(key)
    except BaseException:
        if not struct.release:
            _live.pop(key, None)
        for each in (struct,) if struct.release else below:
            release(each)
        raise


def _nothing(key):
    pass


def export_schema(field, struct=None):
    """An ArrowSchema."""
    struct = ArrowSchema() if struct is None else struct
    texts = [ctypes.create_string_buffer(t) for t in (field.format.encode("utf-8", "surrogateescape"), field.name)]
    struct.format, struct.name = map(ctypes.addressof, texts)
    if field.metadata:
        pairs = [len(field.metadata).to_bytes(4, sys.byteorder)]
        pairs += [len(text).to_bytes(4, sys.byteorder) + text for pair in field.metadata for text in pair]
        texts.append(ctypes.create_string_buffer(b"".join(pairs)))
        struct.metadata = ctypes.addressof(texts[2])
    struct.flags = field.flags
    below = _all(export_schema, [(child,) for child in field.below()])
    _fill(struct, _nothing, _nothing, texts, below, bool(field.dictionary))
    return struct


def export_array(node, field, memory, struct=None):
    """An ArrowArray of a node of a ticket in opened memory, which it retains."""
    struct = ArrowArray() if struct is None else struct
    struct.length, struct.null_count, struct.offset = node.length, node.null_count, node.offset
    addresses, layout = [memory.address(*place) for place in node.buffers], layout_of(field)
    if layout.extra and not addresses[1]:  # of an array without elements; PyArrow wants to read one offset
        addresses[1] = ctypes.addressof(_ZEROS)
    sizes = (_int64 * max(len(node.view_sizes), 1))(*node.view_sizes)
    if layout.is_view:
        addresses.append(ctypes.addressof(sizes))
    buffers = (_void * max(len(addresses), 1))(*addresses)
    struct.n_buffers, struct.buffers = len(addresses), ctypes.addressof(buffers)
    below = _all(export_array, [(child, f, memory) for child, f in zip(node.below(), field.below())])
    _fill(struct, memory.retain, memory.release, (buffers, sizes), below, bool(field.dictionary))
    return struct


def _all(export, arguments):
    """The structs of each, or none."""
    made = []
    try:
        for each in arguments:
            made.append(export(*each))
    except BaseException:
        for struct in made:
            release(struct)
        raise
    return made


class _Offer:
    """A capsule, and the struct in it until a consumer has moved it."""

    __slots__ = ("capsule", "struct")

    def __init__(self, capsule, struct):
        self.capsule, self.struct = capsule, struct

    def references(self):
        return sys.getrefcount(self.capsule)


_offers: list[_Offer] = []
_UNUSED = _Offer(object(), None).references()

for _kept in (_live, _offers):  # consumers may release structs after the end of Python
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_kept))


def capsule(struct, name):
    """A capsule, whose struct is released by sweep() if no consumer takes it. It has no destructor: one in Python would replace
    the exception that is being raised while the capsule is destroyed."""
    try:
        made = _new_capsule(ctypes.addressof(struct), name, None)  # this variable keeps sweep() off
        _offers.append(_Offer(made, struct))
        return made
    except BaseException:
        release(getattr(struct, "array", struct))
        raise


def sweep():
    """Releases the structs of capsules that are gone. It reports whether there are others."""
    for offer in list(_offers):
        if offer.references() > _UNUSED:  # also of a struct that was moved: a consumer may be at it
            continue
        try:
            _offers.remove(offer)
        except ValueError:  # another thread was first
            continue
        release(offer.struct)
    return bool(_offers)


def release(struct):
    """Calls the release callback of a struct, unless it was released or moved."""
    array = getattr(struct, "array", struct)
    if array.release:
        RELEASE(array.release)(ctypes.addressof(array))


class Owned:
    """A struct of a producer. It is released after the last reference to this object, unless it was before."""

    __slots__ = ("struct", "_at_end", "__weakref__")

    def __init__(self, kind):
        """It is empty, to be filled by the producer."""
        self.struct = kind()
        worker.run(self._own)

    def _own(self):
        releaser.start()
        self._at_end = releaser.at_end(self)
        self._at_end.append((release, self.struct))

    def keep(self, kept):
        """Has the releaser drop an object after the last reference to this one, unless let_go() is called."""
        self._at_end.append((_drop, kept))

    def let_go(self):
        self._at_end.pop()

    def end(self, released):
        """Has a function called once the struct is released after the last reference. No signal handler runs on the thread."""
        self._at_end.insert(0, (released,))
        if releaser.has_ended or sys.is_finalizing():
            release(self.struct)
            released()


def _drop(_):
    pass


def _move(*capsules):
    """The structs of capsules, each with its name and the kind of its struct."""
    moved = worker.run(_moved, capsules)
    moved[0].let_go()
    return moved


def _moved(capsules):
    """If the caller was interrupted, this thread has the last references to the capsules, whose destructors must not run on it."""
    moved = [Owned(kind) for _, _, kind in capsules]
    moved[0].keep(capsules)
    for owned, (capsule, name, kind) in zip(moved, capsules):
        source = kind.from_address(_get_pointer(capsule, name))
        if not source.release:
            raise Invalid(f"the {name.decode()} was released already")
        ctypes.memmove(ctypes.addressof(owned.struct), ctypes.addressof(source), ctypes.sizeof(kind))
        source.release = None
    return moved


class Invalid(ValueError):
    """What an object exports is not as the interface demands, or is more than can be used. The text names the field."""


def import_array(data):
    """The schema and the owned ArrowArray of an object with __arrow_c_array__, or with __arrow_c_stream__, which is taken once:
    PyArrow combines several batches. The array is None for a stream without batches."""
    if hasattr(data, "__arrow_c_array__"):
        schema, array = data.__arrow_c_array__()
        schema, array = _move((schema, b"arrow_schema", ArrowSchema), (array, b"arrow_array", ArrowArray))
        return _schema_of_batch(schema), array
    (stream,), arrays = _move((data.__arrow_c_stream__(), b"arrow_array_stream", ArrowArrayStream)), []
    try:
        field = _schema_of_batch(_next(stream.struct, "get_schema", ArrowSchema))
        while len(arrays) < 2:
            array = _next(stream.struct, "get_next", ArrowArray)
            if not array.struct.release:
                return field, arrays.pop() if arrays else None
            arrays.append(array)
        return import_array(_combined(stream.struct, [array.struct for array in arrays]))
    finally:
        for each in (*arrays, stream):
            release(each.struct)


def _combined(stream, arrays):
    """A batch of PyArrow with the rows of the first arrays of a stream and of those that follow, which it takes."""
    try:
        import pyarrow
    except ImportError as error:
        raise Invalid("a stream of several batches needs PyArrow, which combines them") from error
    reader = pyarrow.RecordBatchReader._import_from_c(ctypes.addressof(stream))
    batches = [pyarrow.RecordBatch._import_from_c(ctypes.addressof(array), reader.schema) for array in arrays]
    batches += reader
    try:
        whole = pyarrow.Table.from_batches(batches).combine_chunks().to_batches()
    except (pyarrow.ArrowException, NotImplementedError) as error:
        raise Invalid(f"a stream of {len(batches)} batches, which PyArrow cannot combine: {error}") from error
    if len(whole) > 1:
        raise Invalid(f"a stream of {len(batches)} batches, of which PyArrow makes no fewer than {len(whole)}")
    return whole[0] if whole else batches[0]


def _next(stream, function, kind):
    """What a function of a stream makes."""
    at, owned = ctypes.addressof(stream), Owned(kind)
    if not getattr(stream, function) or not stream.get_last_error:
        raise Invalid(f"ArrowArrayStream.{function} = NULL, want a function")
    if number := _GET(getattr(stream, function))(at, ctypes.addressof(owned.struct)):
        text = _GET_LAST_ERROR(stream.get_last_error)(at)
        raise OSError(number, (text or b"").decode("utf-8", "replace") or f"{function} failed")
    return owned


def _schema_of_batch(owned):
    """The fields of a schema, which is released."""
    try:
        field = _field(owned.struct, 0, "schema")
    finally:
        release(owned.struct)
    if field.format != "+s" or field.dictionary:
        raise Invalid(f"the type {field.format!r}, want a record batch: a struct")
    return field


def count_fields(capsule):
    """The number of fields of the schema in a capsule."""
    return ArrowSchema.from_address(_get_pointer(capsule, b"arrow_schema")).n_children


def _field(struct, depth, at):
    if depth > MAX_DEPTH:
        raise Invalid(f"{at[:100]}...: fields are nested more than {MAX_DEPTH} deep")
    if not struct.release or not struct.format:
        raise Invalid(f"{at}.{'format' if struct.release else 'release'} = NULL")
    format = ctypes.string_at(struct.format).decode("utf-8", "surrogateescape")
    name = ctypes.string_at(struct.name) if struct.name else b""
    children = [
        _field(ArrowSchema.from_address(child), depth + 1, f"{at}.children[{i}]")
        for i, child in enumerate(pointers(struct, "children", at))
    ]
    dictionary = None
    if struct.dictionary:
        dictionary = _field(ArrowSchema.from_address(struct.dictionary), depth + 1, f"{at}.dictionary")
    field = Field(format, name, struct.flags, _pairs(struct.metadata, f"{at}.metadata"), children, dictionary)
    try:
        wanted = layout_of(field).children
    except ValueError:
        raise Invalid(f"{at}.format = {format!r}, which is not known") from None
    if len(children) != wanted:
        raise Invalid(f"{at}.n_children = {len(children)}, want {wanted} for {format!r}")
    _check_dictionary(field, at)
    return field


def _check_dictionary(field, at):
    """Refuses dictionaries that the schema of a ticket has no place for."""
    values = field.dictionary
    if not values:
        return
    if field.format not in _INDICES:
        raise Invalid(f"{at}.format = {field.format!r}, want integers, the indices of a dictionary")
    if values.dictionary:
        raise Invalid(f"{at}.dictionary.dictionary: the values of a dictionary are a dictionary themselves")
    if any(key == b"ARROW:extension:name" for key, _ in values.metadata):
        raise Invalid(f"{at}.dictionary.metadata: the values of a dictionary are of an extension type")


_INDICES = frozenset("cCsSiIlL")  # formats


def pointers(struct, name, at):
    """The elements of an array of pointers: the field of this name of a struct at a place. Only buffers may be NULL."""
    address, count = getattr(struct, name), getattr(struct, f"n_{name}")
    if count < 0:
        raise Invalid(f"{at}.n_{name} = {count}, want 0 or more")
    if count and (not address or address % 8):
        raise Invalid(f"{at}.{name} = {address or 0:#x}, want the address of {count} pointers")
    found = [at or 0 for at in (_void * count).from_address(address)] if count else []
    if name == "children" and not all(found):
        raise Invalid(f"{at}.children[{found.index(0)}] = NULL")
    return found


def _pairs(at, name):
    if not at:
        return []

    def number():
        nonlocal at
        at += 4
        count = ctypes.c_int32.from_address(at - 4).value
        if count < 0:
            raise Invalid(f"{name}: the size {count}, want 0 or more")
        return count

    def text():
        nonlocal at
        size = number()
        at += size
        return ctypes.string_at(at - size, size)

    return [(text(), text()) for _ in range(number())]
