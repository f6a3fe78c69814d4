"""Both ways over the boundary, by every protocol, and where the memory is."""

import pyarrow as pa

import abi
import golib

# Device arrays by address and in capsules, and plain arrays in capsules.
PROTOCOLS = ("pointer", "capsule", "plain")


def to_pyarrow(go, protocol):
    """Exports a GoArray or GoBatch and imports it into PyArrow."""
    batch = isinstance(go, golib.GoBatch)
    if protocol != "pointer":
        source = go.plain() if protocol == "plain" else go
        return pa.record_batch(source) if batch else pa.array(source)
    with abi.structs() as s:
        go._export_to_c_device(*s.addresses)
        arrow = (pa.RecordBatch if batch else pa.Array)._import_from_c_device(*s.addresses)
        assert s.released, "the consumer moves both structs"
    return arrow


def to_go(arrow, protocol, full_validation=True):
    """Exports a PyArrow array or record batch and imports it into Go."""
    cls = golib.GoBatch if isinstance(arrow, pa.RecordBatch) else golib.GoArray
    if protocol == "capsule":
        return cls.from_arrow(arrow, full_validation=full_validation)
    if protocol == "plain":
        return cls.from_plain(arrow, full_validation=full_validation)
    with abi.structs() as s:
        arrow._export_to_c_device(*s.addresses)
        go = cls._import_from_c_device(*s.addresses, full_validation=full_validation)
        assert s.released, "the consumer moves both structs"
    return go


def _children(array):
    t = array.type
    if pa.types.is_run_end_encoded(t):
        return [array.run_ends, array.values]
    if pa.types.is_struct(t) or pa.types.is_union(t):
        return [array.field(i) for i in range(t.num_fields)]
    return [array.values] if t.num_fields else []


def pyarrow_buffers(array):
    """The buffers of an array's tree, in the shape of GoArray.buffers(); a record
    batch gives a list of trees."""
    if isinstance(array, pa.RecordBatch):
        return [pyarrow_buffers(column) for column in array.columns]
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    children = [pyarrow_buffers(child) for child in _children(array)]
    below = sum(_count(child) for child in children)
    buffers = array.buffers()  # those of the children follow the array's own
    return {
        "length": len(array),
        "nulls": array.null_count,
        "buffers": [_place(b) for b in buffers[: len(buffers) - below]],
        "children": children,
        "dictionary": pyarrow_buffers(array.dictionary) if pa.types.is_dictionary(array.type) else None,
    }


_NOWHERE = {"address": 0, "size": 0}


def _place(buffer):
    # A buffer of size 0 is false.
    return _NOWHERE if buffer is None else {"address": buffer.address, "size": buffer.size}


def _count(tree):
    return len(tree["buffers"]) + sum(_count(child) for child in tree["children"])


class NotShared(AssertionError):
    """One object has bytes that are not the other's."""


def same_memory(left, right):
    """How many buffers two objects share, of which either may be Go's or
    PyArrow's. Raises NotShared unless it is all of them. A bitmap may be left out,
    where no element is null."""
    return _same_memory(_tree(left), _tree(right), "")


def _tree(thing):
    return thing.buffers() if isinstance(thing, golib.GoObject) else pyarrow_buffers(thing)


def _same_memory(left, right, path):
    if isinstance(left, list):
        if len(left) != len(right):
            raise NotShared(f"{path}: {len(left)} arrays, {len(right)} arrays")
        return sum(_same_memory(left[i], right[i], f"{path}[{i}]") for i in range(len(left)))
    shared = 0
    for i in range(max(len(left["buffers"]), len(right["buffers"]))):
        one, other = _buffer(left, i), _buffer(right, i)
        if left["length"] == 0:
            continue  # no elements, so either library may put another buffer there
        if i == 0 and _NOWHERE in (one, other) and left["nulls"] == right["nulls"] == 0:
            continue  # Go exports no bitmap for an array that is known to have no nulls
        if i >= 2 and left["length"] and _NOWHERE in (one, other):
            continue  # the bytes of strings, where no string has any
        if one["size"] or other["size"]:
            if one["address"] != other["address"]:
                raise NotShared(f"{path}.buffers[{i}]: {one}, {other}")
            shared += 1
    shared += _same_memory(left["children"], right["children"], path)
    if (left["dictionary"] is None) != (right["dictionary"] is None):
        raise NotShared(f"{path}.dictionary: only one has it")
    if left["dictionary"]:
        shared += _same_memory(left["dictionary"], right["dictionary"], path + ".dictionary")
    return shared


def _buffer(tree, i):
    # A type without buffers has none in one library, and an empty place for a
    # bitmap in the other.
    return tree["buffers"][i] if i < len(tree["buffers"]) else _NOWHERE
