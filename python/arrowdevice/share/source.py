"""The batch that is shared: its structs, which are checked before what they point to is read, and its memory."""

from __future__ import annotations

import ctypes
import struct as structs

from . import cdata, memory
from .errors import NotShareable
from .opener import MAX_FILES
from .schema import layout_of
from .ticket import MAX_SIZE, Node, Region, Ticket, here, namespace
from .wire import until

_ALIGNMENT = 64  # bytes, of buffers in a copy
_COPY = -1  # stands for the region of the copies
_MAX_BUFFER = 1 << 47  # bytes: more than any process can address


def take(data):
    """The schema and the memory of a batch."""
    if not hasattr(data, "__arrow_c_array__") and not hasattr(data, "__arrow_c_stream__"):
        if hasattr(data, "__arrow_c_device_array__"):
            raise NotShareable("share: share: data are in memory of a device, which a Go program can share")
        raise TypeError(f"share: share: data = {type(data).__name__}, want an object with __arrow_c_array__ or __arrow_c_stream__")
    try:
        field, owned = cdata.import_array(data)
        return field, Source(owned)
    except cdata.Invalid as error:
        raise NotShareable(f"share: share: data: {error}") from error


def encode(ticket):
    """The bytes of a ticket, which have passed the checks of an opener."""
    try:
        data = ticket.encode()
        if len(data) > MAX_SIZE:
            raise NotShareable(f"share: share: the ticket has {len(data)} bytes, want at most {MAX_SIZE}")
        with until(float("inf")):  # a signal handler may have ended the bound of an opening
            Ticket.decode(data).decode_rest()
        return data
    except NotShareable:
        raise
    except (ValueError, structs.error) as error:  # structs.error of numbers in a format that the schema has no room for
        raise NotShareable(f"share: share: data: {str(error).removeprefix('share: ticket: ')}") from error


class Source:
    """The memory of a batch: the blocks that its buffers are in, and one that the others are copied to."""

    def __init__(self, owned):
        """It has the only reference to the owned struct, which is None if there is none."""
        self._owned, self.blocks = owned, []
        self._allocated = None  # while the batch is described
        self._places, self._copied = {}, 0  # of buffers, by their addresses and sizes; bytes to copy

    def release(self, released=None):
        """Ends it, and has a function called once the producer has released the data. The worker or the loop calls it."""
        owned, self._owned, self.blocks = self._owned, None, []
        if released is None:
            return
        if owned is None:
            released()
        else:
            owned.end(released)

    def files(self):
        return [block.file for block in self.blocks]

    def describe(self, field):
        """The ticket of the batch, without what its owner adds."""
        t, root = Ticket(), self._owned and self._owned.struct
        t.schema, t.process = field, here.process
        t.network, t.pids = namespace("net"), namespace("pid")
        if root is None:
            t.columns = [_empty(f) for f in field.children]
            return t
        self._allocated = memory.Allocated()
        try:
            t.rows, t.columns = root.length, self.columns(root, field)
        except cdata.Invalid as error:
            raise NotShareable(f"share: share: data: {error}") from None
        self._allocated, in_place = None, bool(self.blocks)
        self.copy(t.columns)
        if not in_place:
            cdata.release(root)  # nothing of it is used any more
            self._owned = None
        if len(self.blocks) > MAX_FILES:
            raise NotShareable(f"share: share: more than {MAX_FILES} allocations: copy the data, which makes one")
        t.regions = [Region(size=block.size) for block in self.blocks]
        return t

    def columns(self, root, field):
        """Describes the columns, cut to the rows of the batch."""
        _check_range(root, "array")
        if _has_nulls(root, field):
            raise _invalid("array.null_count", root.null_count, "0: a record batch is a struct without nulls")
        columns = []
        for i, (column, f) in enumerate(zip(_children(root, field, "array"), field.children)):
            if column.length < root.offset + root.length:
                raise _invalid(f"columns[{i}].length", column.length, f"at least {root.offset + root.length}, the rows")
            _check_range(column, f"columns[{i}]")
            if root.offset or column.length != root.length:
                column.offset += root.offset
                column.length, column.null_count = root.length, -1 if column.null_count else 0
            columns.append(self.node(column, f, f"columns[{i}]"))
        return columns

    def node(self, array, field, at):
        """Describes an array and those below it."""
        _check_range(array, at)
        node, layout = Node(array.length, array.null_count, array.offset if array.length else 0), layout_of(field)
        buffers = _buffers(array, layout, at)
        sizes = _sizes(buffers, layout, array, at)
        node.offset -= self.skip(node.offset, layout, buffers, sizes)
        node.buffers = [self.place(buffer, size) for buffer, size in zip(buffers, sizes)]
        node.view_sizes = sizes[2:] if layout.is_view else []
        children = _children(array, field, at)
        node.children = [self.node(c, f, f"{at}.children[{i}]") for i, (c, f) in enumerate(zip(children, field.children))]
        if bool(array.dictionary) != bool(field.dictionary):
            has, wants = ("one" if d else "NULL" for d in (array.dictionary, field.dictionary))
            raise _invalid(f"{at}.dictionary", has, f"{wants}, as the schema has it")
        if field.dictionary:
            node.dictionary = self.node(_below(array.dictionary, f"{at}.dictionary"), field.dictionary, f"{at}.dictionary")
        return node

    def skip(self, offset, layout, buffers, sizes):
        """Moves the starts of buffers that will be copied towards the first element, and returns by how many elements: whole bytes
        of a bitmap. Elements of structs, sparse unions and lists of fixed size lie where those of their children do, and so stay."""
        skipped = offset - offset % 8
        if not skipped or not layout.buffers or layout.times or any(self._allocated.find(b) for b in buffers[: layout.buffers] if b):
            return 0
        for i in range(layout.buffers):
            if buffers[i]:
                buffers[i] += skipped * layout.bits(i) // 8
                sizes[i] -= skipped * layout.bits(i) // 8
        return skipped

    def place(self, address, size):
        """The place of a buffer of some bytes."""
        if not address or size == 0:
            return (0, 0)
        if (address, size) in self._places:
            return self._places[address, size]
        block = self._allocated.find(address)
        if block is None or address + size > block.address + block.size:
            place = (_COPY, self._copied)
            self._copied += -(-size // _ALIGNMENT) * _ALIGNMENT
        else:
            if block not in self.blocks:
                self.blocks.append(block)
            place = (self.blocks.index(block) + 1, address - block.address)
        self._places[address, size] = place
        return place

    def copy(self, nodes):
        """Copies what is not in a block to one, which becomes the last region."""
        if not self._copied:
            return
        block = memory.Block(self._copied)
        self.blocks.append(block)
        for (address, size), (region, at) in self._places.items():
            if region == _COPY:
                ctypes.memmove(block.address + at, address, size)
        _renumber(nodes, len(self.blocks))


def _renumber(nodes, number):
    for node in nodes:
        node.buffers = [(number if region == _COPY else region, at) for region, at in node.buffers]
        _renumber(node.below(), number)


def _empty(field):
    """An array of a field without elements."""
    node = Node()
    node.buffers = [(0, 0)] * layout_of(field).buffers
    node.children = [_empty(child) for child in field.children]
    node.dictionary = _empty(field.dictionary) if field.dictionary else None
    return node


def _invalid(at, got, want):
    return cdata.Invalid(f"{at} = {got}, want {want}")


def _check_range(array, at):
    if array.length < 0:
        raise _invalid(f"{at}.length", array.length, "0 or more")
    if array.offset < 0 or array.offset + array.length >> 63:
        raise _invalid(f"{at}.offset", array.offset, f"0 to {(1 << 63) - 1 - array.length}")
    if not -1 <= array.null_count <= array.length:
        raise _invalid(f"{at}.null_count", array.null_count, f"-1 to {array.length}")


def _below(address, at):
    """The array at an address."""
    array = cdata.ArrowArray.from_buffer_copy(cdata.ArrowArray.from_address(address))
    if not array.release:
        raise _invalid(f"{at}.release", "NULL", "an array that was not released")
    return array


def _children(array, field, at):
    if array.n_children != len(field.children):  # a larger number would lead outside
        raise _invalid(f"{at}.n_children", array.n_children, f"{len(field.children)} for {field.format!r}")
    found = cdata.pointers(array, "children", at)
    return [_below(child, f"{at}.children[{i}]") for i, child in enumerate(found)]


def _buffers(array, layout, at):
    """The buffers, as layout has them: those of views are followed by their sizes."""
    count, is_old = array.n_buffers, not layout.has_validity and array.n_buffers == layout.buffers + 1
    if not is_old and not (3 <= count < 1 << 31 if layout.is_view else count == layout.buffers):
        raise _invalid(f"{at}.n_buffers", count, f"{'at least 3' if layout.is_view else layout.buffers}")
    found = cdata.pointers(array, "buffers", at)
    return found[1:] if is_old else found  # a bitmap of a union by producers of old, and of nulls by Polars


def _sizes(buffers, layout, array, at):
    """The bytes of the buffers."""
    sizes = [layout.least_size(i, array.offset + array.length) if array.length else 0 for i in range(layout.buffers)]
    for i, size in enumerate(sizes):
        if size > _MAX_BUFFER:
            raise _invalid(f"{at}.buffers[{i}]", f"{size} bytes", f"at most {_MAX_BUFFER}")
        is_needed = size > 0 if i or not layout.has_validity else array.null_count > 0
        if is_needed and not buffers[i]:
            raise _invalid(f"{at}.buffers[{i}]", "NULL", f"{size} bytes, with null_count = {array.null_count}")
    if layout.data and array.length:
        sizes[2] = _data_size(buffers, layout, array, at)
    if layout.is_view:
        sizes += _view_sizes(buffers, at)
    return sizes


def _data_size(buffers, layout, array, at):
    """The bytes that the last offset of a binary array leads to."""
    integer = ctypes.c_int32 if layout.data == 4 else ctypes.c_int64
    ends = (array.offset, array.offset + array.length)
    first, last = (integer.from_address(buffers[1] + layout.data * i).value for i in ends)
    if not 0 <= first <= last <= _MAX_BUFFER:
        raise _invalid(f"{at}.buffers[1][{ends[1]}]", last, f"an offset from {max(first, 0)} to {_MAX_BUFFER}")
    if last and not buffers[2]:
        raise _invalid(f"{at}.buffers[2]", "NULL", f"{last} bytes")
    return last


def _view_sizes(buffers, at):
    """The bytes of the variadic buffers of an array of views."""
    count, last = len(buffers) - 3, len(buffers) - 1
    if not count:
        return []
    if not buffers[last] or buffers[last] % 8:
        raise _invalid(f"{at}.buffers[{last}]", f"{buffers[last]:#x}", f"the sizes of {count} buffers")
    sizes = list((ctypes.c_int64 * count).from_address(buffers[last]))
    for i, size in enumerate(sizes):
        if not 0 <= size <= _MAX_BUFFER:
            raise _invalid(f"{at}.buffers[{last}][{i}]", size, f"0 to {_MAX_BUFFER}")
        if size and not buffers[2 + i]:
            raise _invalid(f"{at}.buffers[{2 + i}]", "NULL", f"{size} bytes")
    return sizes


def _has_nulls(struct, field):
    """Reports whether a struct array has nulls. Its producer may not have counted them."""
    (bitmap,) = _buffers(struct, layout_of(field), "array")
    if struct.null_count >= 0 or not bitmap:
        return struct.null_count > 0
    start, end = struct.offset // 8, (struct.offset + struct.length + 7) // 8
    valid = int.from_bytes(ctypes.string_at(bitmap + start, end - start), "little") >> struct.offset % 8
    every = (1 << struct.length) - 1
    return valid & every != every
