"""The consumer that stands in for libcudf where that cannot run: it checks the rules that libcudf relies on without checking
them itself, and copies the array to the host by calls of the driver."""

import ctypes
import struct

import abi
import capsules
import consumers
import driver

# libcudf reads bitmaps in words of 32 bits, and its own allocations are padded to 64 bytes.
PADDING, WORD = 64, 4

# The sizes of the values of the fixed-width types that libcudf has, by format.
WIDTHS = {"c": 1, "C": 1, "s": 2, "S": 2, "i": 4, "I": 4, "l": 8, "L": 8, "f": 4, "g": 8, "tdD": 4}

# The formats with offsets: the code of an offset, and whether a third buffer has the values.
OFFSETS = {"u": ("i", True), "U": ("q", True), "+l": ("i", False)}


def width(kind):
    if kind.startswith(("ts", "tD")):
        return 8
    if kind.startswith("d:"):
        return int((kind[2:].split(",") + ["128"])[2]) // 8
    return WIDTHS.get(kind, 0)


def room(address):
    """The bytes between an address and the end of its allocation; None where the driver knows no allocation."""
    base, size = driver.address(), driver.size()
    try:
        driver.call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), driver.address(address))
    except driver.Error:
        return None
    return base.value + size.value - address


class Reader:
    """Copies an array to the host, and notes what breaks a rule."""

    def __init__(self, stream):
        self._stream, self._path = stream, ""
        self.faults = []

    def read(self, path, schema, array):
        """The tree of an array, and its bitmap as a number, of which only the elements' bits are set; None without a bitmap."""
        self._path = path
        kind = schema.format.decode()
        self._expect(array.length < 1 << 31, f"length {array.length}")
        self._expect(array.offset == 0, f"offset {array.offset}")
        bits, buffers = None, []
        if kind == "n":
            self._expect(array.n_buffers == 0, "a null column has buffers")
        else:
            bitmap = self._bitmap(array)
            if bitmap:
                bits = int.from_bytes(bitmap, "little") & (1 << array.length) - 1
            buffers = [bitmap, *self._values(kind, array, bits)]
        children = []
        for i in range(array.n_children):
            child, child_bits = self.read(f"{path}.{i}", schema.children[i].contents, array.children[i].contents)
            children.append(child)
            self._path = path
            if kind == "+s" and bits is not None and child.buffers:
                self._below(i, array.length, bits, child_bits)
        dictionary = None
        if schema.dictionary:
            dictionary, _ = self.read(path + ".dictionary", schema.dictionary.contents, array.dictionary.contents)
            self._expect(array.dictionary.contents.null_count == 0, "the dictionary has nulls")
        self._path = path
        kept = [buffer and ctypes.create_string_buffer(buffer, len(buffer)) for buffer in buffers]
        addresses = [buffer and ctypes.addressof(buffer) for buffer in kept]
        tree = capsules.Tree(
            array.length, *addresses, null_count=array.null_count, children=children, dictionary=dictionary, keep=kept
        )
        return tree, bits

    def _expect(self, holds, fault):
        if not holds:
            self.faults.append(f"{self._path}: {fault}")

    def _copy(self, address, size):
        out = ctypes.create_string_buffer(size)
        try:
            driver.pointer(driver.MEMORY_TYPE, address, ctypes.c_uint)
        except driver.Error:  # not the driver's memory
            return ctypes.string_at(address, size)
        copied = driver.address(ctypes.addressof(out)), driver.address(address), driver.size(size), driver.handle(self._stream)
        driver.call("cuMemcpyAsync", *copied)
        driver.call("cuStreamSynchronize", driver.handle(self._stream))
        return out.raw

    def _bitmap(self, array):
        """The bitmap, whose count of nulls must be exact, and which is read in whole words."""
        address = array.buffers[0] if array.n_buffers else None
        self._expect(array.null_count >= 0, f"null count {array.null_count}")
        if not address:
            self._expect(array.null_count <= 0, f"null count {array.null_count} without a bitmap")
            return None
        self._expect(address % PADDING == 0, "the bitmap is not aligned")
        size = (array.length + 7) // 8
        there = room(address)
        self._expect(there is None or there >= -(-size // WORD) * WORD, "the bitmap ends in the middle of a word")
        data = self._copy(address, size if there is None else min(there, -(-size // PADDING) * PADDING))
        bits = int.from_bytes(data, "little")
        self._expect(bits >> array.length == 0, "the padding of the bitmap is not zero")
        nulls = array.length - (bits & (1 << array.length) - 1).bit_count()
        self._expect(nulls == array.null_count, f"null count {array.null_count}, counted {nulls}")
        return data

    def _buffer(self, array, index, size):
        """A buffer that libcudf dereferences if it has elements."""
        if size == 0:
            return None
        address = array.buffers[index] if index < array.n_buffers else None
        self._expect(address, f"buffer {index} is NULL")
        if not address:
            return None
        self._expect(address % PADDING == 0, f"buffer {index} is not aligned")
        there = room(address)
        self._expect(there is None or there >= size, f"buffer {index} is too short")
        return self._copy(address, size if there is None else min(there, size))

    def _values(self, kind, array, bits):
        """The buffers after the bitmap."""
        if kind == "b":
            return [self._buffer(array, 1, (array.length + 7) // 8)]
        if width(kind):
            return [self._buffer(array, 1, array.length * width(kind))]
        if kind in OFFSETS:
            return self._offsets(array, bits, *OFFSETS[kind])
        if kind == "vu":
            return self._views(array)
        self._expect(kind == "+s", f"libcudf has no column for the format {kind}")
        return []

    def _offsets(self, array, bits, code, has_values):
        size = struct.calcsize(code)
        data = self._buffer(array, 1, (array.length + 1) * size if array.length else 0) or bytes(size)
        offsets = struct.unpack(f"{len(data) // size}{code}", data)
        self._expect(offsets[0] == 0, f"the first offset is {offsets[0]}")
        for i in range(array.length if bits is not None else 0):
            if not bits >> i & 1 and offsets[i] != offsets[i + 1]:
                self._expect(False, f"element {i} is null and not empty")
                break
        return [data, self._buffer(array, 2, offsets[-1])] if has_values else [data]

    def _views(self, array):
        views, count = self._buffer(array, 1, array.length * 16), array.n_buffers - 3
        self._expect(count >= 0, f"a view has {array.n_buffers} buffers")
        if count <= 0:
            return [views, None]
        sizes = self._copy(array.buffers[array.n_buffers - 1], count * 8)
        variadic = [self._buffer(array, 2 + i, size) for i, size in enumerate(struct.unpack(f"{count}q", sizes))]
        return [views, *variadic, sizes]

    def _below(self, child, length, bits, child_bits):
        """Elements below a struct that is null must be null."""
        nulls = ~bits & (1 << length) - 1
        filled = nulls if child_bits is None else nulls & child_bits
        if filled:
            element = (filled & -filled).bit_length() - 1
            self._expect(False, f"element {element} is null, and its child {child} is not")


class Standin:
    def take(self, value, table, stream):
        handed = consumers.Handed(value)
        event = handed.array.sync_event
        if event:  # as libcudf does: sync_event is the address of a CUevent
            driver.call("cuStreamWaitEvent", driver.handle(stream), driver.handle.from_address(event), 0)
        return TakenByStandin(handed, stream)


class TakenByStandin(consumers.Taken):
    def __init__(self, handed, stream):
        super().__init__(handed)
        self._stream, self._tree = stream, None

    def faults(self):
        reader, of = Reader(self._stream), self._exported.array
        self._tree, _ = reader.read("array", self._exported.schema, of.array)
        if of.device_type not in (abi.CUDA, abi.CUDA_HOST, abi.CUDA_MANAGED):
            reader.faults.append(f"device type {of.device_type}")
        if of.device_id:
            reader.faults.append(f"device {of.device_id}")
        if any(of.reserved):
            reader.faults.append("a reserved field is not 0")
        return reader.faults

    def host(self):
        if self._tree is None:
            self.faults()
        return capsules.Produced(self._exported, capsules.export(self._tree))
