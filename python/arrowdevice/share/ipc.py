"""The schema as an Arrow IPC stream without batches: a FlatBuffers message (Message.fbs, Schema.fbs)."""

from __future__ import annotations

import struct

from .errors import BadTicket
from .schema import KEYS_SORTED, MAX_DEPTH, NULLABLE, ORDERED, Field

_CONTINUATION = b"\xff\xff\xff\xff"
_V5, _SCHEMA = 4, 1
_INT = 2
_SLOTS = 8  # no table of a schema has more, in this version of the format

# The types of Schema.fbs whose format has no parameter.
_PLAIN = {
    1: "n", 4: "z", 5: "u", 6: "b", 12: "+l", 13: "+s", 17: "+m", 19: "Z", 20: "U", 21: "+L", 22: "+r", 23: "vz", 24: "vu", 25: "+vl",
    26: "+vL",
}  # fmt: skip
_DIGITS = {32: 9, 64: 18, 128: 38, 256: 76}  # of a decimal, at most
_INTS = {(8, 1): "c", (8, 0): "C", (16, 1): "s", (16, 0): "S", (32, 1): "i", (32, 0): "I", (64, 1): "l", (64, 0): "L"}
_TIMES = {(32, 0): "tts", (32, 1): "ttm", (64, 2): "ttu", (64, 3): "ttn"}
_UNITS = "smun"


def _bad(text):
    return BadTicket(f"share: ticket: schema: metadata: {text}")


class _Flat:
    """A FlatBuffers buffer whose offsets are not trusted. left is how many bytes may still be visited, each twice: offsets that
    lead to the same bytes any number of times would make a few bytes a tree without end."""

    def __init__(self, b):
        self.b, self.left = b, 2 * len(b)
        if len(b) < 4:
            raise _bad(f"{len(b)} bytes")

    def visit(self, count):
        self.left -= count
        if self.left < 0:
            raise _bad(f"more than its {len(self.b)} bytes")

    def read(self, code, at):
        if at < 0 or at + struct.calcsize(code) > len(self.b):
            raise _bad("an offset leads outside")
        return struct.unpack_from(code, self.b, at)[0]

    def target(self, at):
        to = at + self.read("<I", at)
        if to > len(self.b) - 4:
            raise _bad("an offset leads outside")
        return to


class _Table:
    """The table that the offset at a position leads to."""

    def __init__(self, flat, at):
        self.flat, self.at = flat, flat.target(at)
        vtable = self.at - flat.read("<i", self.at)
        size = flat.read("<H", vtable)
        if size < 4 or size % 2 or vtable + size > len(flat.b):
            raise _bad("a table that lies outside")
        flat.visit(4)
        self.vtable, self.slots = vtable, size // 2 - 2
        if any(self.place(slot) >= len(flat.b) for slot in range(min(self.slots, _SLOTS))):
            raise _bad("a field that lies outside")

    def place(self, slot):
        """The position of a field, or 0 if the table does not have it."""
        if slot >= self.slots:
            return 0
        offset = self.flat.read("<H", self.vtable + 4 + 2 * slot)
        return self.at + offset if offset else 0

    def number(self, slot, code, default=0):
        at = self.place(slot)
        return self.flat.read(f"<{code}", at) if at else default

    def table(self, slot):
        at = self.place(slot)
        return _Table(self.flat, at) if at else None

    def vector(self, slot, width):
        """The position and number of elements of a vector."""
        at = self.place(slot)
        if not at:
            return 0, 0
        at = self.flat.target(at)
        count = self.flat.read("<I", at)
        if count * width > len(self.flat.b) - at - 4:
            raise _bad(f"a vector of {count} elements that lies outside")
        self.flat.visit(count * width)
        return at + 4, count

    def text(self, slot):
        at, count = self.vector(slot, 1)
        return bytes(self.flat.b[at : at + count])

    def tables(self, slot):
        at, count = self.vector(slot, 4)
        return (_Table(self.flat, at + 4 * i) for i in range(count))

    def pairs(self, slot):
        return [(t.text(0), t.text(1)) for t in self.tables(slot)]


def decode(stream):
    """The schema of a stream. BadTicket if it has none."""
    b = bytes(stream)
    if b[:4] == _CONTINUATION:
        b = b[4:]
    if len(b) < 4:
        raise BadTicket(f"share: ticket: schema: {len(stream)} bytes")
    size = struct.unpack_from("<I", b)[0]
    if size > len(b) - 4:
        raise BadTicket(f"share: ticket: schema: {size} bytes of metadata, of which {len(b) - 4} are there")
    message = _Table(_Flat(b[4 : 4 + size]), 0)
    schema = message.table(2)
    if schema is None or message.number(1, "B") != _SCHEMA:
        raise _bad("a message that is no schema")
    if message.number(3, "q"):
        raise _bad("a schema with a body")
    if schema.number(0, "h"):
        raise _bad("big-endian values")
    fields = [_field(t, 0) for t in schema.tables(1)]
    return Field("+s", flags=0, metadata=schema.pairs(2), children=fields)


def _field(t, depth):
    if depth > MAX_DEPTH:
        raise _bad(f"fields are nested more than {MAX_DEPTH} deep")
    name, flags = t.text(0), NULLABLE if t.number(1, "B") else 0
    if b"\0" in name:
        raise _bad(f"the name {name!r}, which C has no text for")
    kind, type_ = t.number(2, "B"), t.table(3)
    if type_ is None:
        raise _bad("a field without a type")
    children = [_field(child, depth + 1) for child in t.tables(5)]
    if kind == 17 and type_.number(0, "B"):
        flags |= KEYS_SORTED
    format = _format(kind, type_, len(children))
    if kind == 22 and (children[0].format not in ("s", "i", "l") or children[0].dictionary):
        raise _bad(f"run ends of the type {children[0].format!r}, want int16, int32 or int64")
    metadata, encoding = t.pairs(6), t.table(4)
    if encoding is None:
        return Field(format, name, flags, metadata, children)
    indices = encoding.table(1)
    if indices is None:
        raise _bad("a dictionary without a type of indices")
    if encoding.number(2, "B"):
        flags |= ORDERED
    values = Field(format, b"", NULLABLE | flags & KEYS_SORTED, (), children)
    return Field(_format(_INT, indices, 0), name, flags & ~KEYS_SORTED, metadata, (), values)


def _format(kind, t, children):
    """The format of a type, which has so many children."""
    wanted = {12: 1, 16: 1, 17: 1, 21: 1, 22: 2, 25: 1, 26: 1}.get(kind, children if kind in (13, 14) else 0)
    if children != wanted:
        raise _bad(f"a field of type {kind} with {children} children, want {wanted}")
    if kind in _PLAIN:
        return _PLAIN[kind]
    try:
        return _PARAMETERS[kind](t, children)
    except (KeyError, IndexError):
        raise _bad(f"a field of type {kind}, whose parameters have no meaning") from None


def _decimal(t, _):
    precision, scale, bits = t.number(0, "i"), t.number(1, "i"), t.number(2, "i", 128)
    if not 1 <= precision <= _DIGITS[bits]:
        raise _bad(f"a decimal of {bits} bits with the precision {precision}, want 1 to {_DIGITS[bits]}")
    return f"d:{precision},{scale}" if bits == 128 else f"d:{precision},{scale},{bits}"


def _timestamp(t, _):
    zone = t.text(1)
    if b"\0" in zone:
        raise _bad("a time zone with a NUL")
    return f"ts{_unit(t, 0)}:{zone.decode('utf-8', 'surrogateescape')}"


def _unit(t, default):
    unit = t.number(0, "h", default)
    return _UNITS[unit if unit >= 0 else 4]


def _union(t, children):
    at, count = t.vector(1, 4)
    codes = [t.flat.read("<i", at + 4 * i) for i in range(count)] if at else list(range(children))
    if len(codes) != children or any(not 0 <= c < 128 for c in codes) or len(set(codes)) != children:
        raise _bad("a union whose type codes are not those of its children")
    return f"+u{'sd'[t.number(0, 'H')]}:{','.join(map(str, codes))}"


def _size(prefix):
    def format(t, _):
        size = t.number(0, "i")
        if size < 0:
            raise _bad(f"a size of {size}")
        return f"{prefix}:{size}"

    return format


_PARAMETERS = {
    _INT: lambda t, _: _INTS[t.number(0, "i"), 1 if t.number(1, "B") else 0],
    3: lambda t, _: "efg"[t.number(0, "H")],
    7: _decimal,
    8: lambda t, _: {0: "tdD", 1: "tdm"}[t.number(0, "h", 1)],
    9: lambda t, _: _TIMES[t.number(1, "i", 32), t.number(0, "h", 1)],
    10: _timestamp,
    11: lambda t, _: {0: "tiM", 1: "tiD", 2: "tin"}[t.number(0, "h")],
    14: _union,
    15: _size("w"),
    16: _size("+w"),
    18: lambda t, _: f"tD{_unit(t, 1)}",
}


class _Writer:
    """Appends tables, each followed by what it refers to: offsets of FlatBuffers lead forwards."""

    def __init__(self):
        self.b = bytearray(4)
        self.dictionaries = 0

    def align(self, size):
        self.b += bytes(-len(self.b) % size)

    def point(self, at):
        struct.pack_into("<I", self.b, at, len(self.b) - at)

    def table(self, at, fields):
        """Writes a table, and the offset to it at a position. fields are by slot: a pair of a code of struct and a number, or a
        function that writes what the field refers to, given the position of the offset."""
        slots, place = [0] * (max(fields, default=-1) + 1), 4
        for slot, value in fields.items():
            size = 4 if callable(value) else struct.calcsize(value[0])
            place += -place % size
            slots[slot], place = place, place + size
        self.align(2)
        start = len(self.b)
        self.b += struct.pack(f"<HH{len(slots)}H", 4 + 2 * len(slots), place, *slots)
        self.align(8)
        table = len(self.b)
        self.point(at)
        self.b += struct.pack("<i", table - start) + bytes(place - 4)
        for slot, value in fields.items():
            if not callable(value):
                struct.pack_into(f"<{value[0]}", self.b, table + slots[slot], value[1])
        for slot, value in fields.items():
            if callable(value):
                value(table + slots[slot])

    def text(self, value):
        def write(at):
            self.align(4)
            self.point(at)
            self.b += struct.pack("<I", len(value)) + value + b"\0"

        return write

    def tables(self, tables):
        def write(at):
            self.align(4)
            self.point(at)
            first = len(self.b) + 4
            self.b += struct.pack("<I", len(tables)) + bytes(4 * len(tables))
            for i, fields in enumerate(tables):
                self.table(first + 4 * i, fields)

        return write

    def numbers(self, values):
        def write(at):
            self.align(4)
            self.point(at)
            self.b += struct.pack(f"<I{len(values)}i", len(values), *values)

        return write

    def sub(self, fields):
        return lambda at: self.table(at, fields)

    def pairs(self, pairs):
        return self.tables([{0: self.text(k), 1: self.text(v)} for k, v in pairs])

    def field(self, f):
        """The fields of the table of a field."""
        values = f.dictionary or f
        kind, parameters = self.type(values)
        flags = f.flags | values.flags & KEYS_SORTED
        if kind == 17 and flags & KEYS_SORTED:
            parameters = {0: ("B", 1)}
        t = {0: self.text(f.name), 1: ("B", 1 if f.flags & NULLABLE else 0), 2: ("B", kind), 3: self.sub(parameters)}
        if f.dictionary:
            encoding = {0: ("q", self.dictionaries), 1: self.sub(self.type(f, indices=True)[1]), 2: ("B", f.flags & ORDERED)}
            self.dictionaries += 1
            t[4] = self.sub(encoding)
        t[5] = self.tables([self.field(child) for child in values.children])
        if f.metadata:
            t[6] = self.pairs(f.metadata)
        return t

    def type(self, f, indices=False):
        """The number of the type of a format, and the fields of its table."""
        name, _, rest = f.format.partition(":")
        for kind, plain in _PLAIN.items():
            if plain == f.format:
                return kind, {}
        for (bits, sign), plain in _INTS.items():
            if plain == name:
                return _INT, {0: ("i", bits), 1: ("B", sign)}
        if indices:
            raise ValueError(f"indices of the format {f.format!r}")
        for (bits, unit), plain in _TIMES.items():
            if plain == name:
                return 9, {0: ("h", unit), 1: ("i", bits)}
        if name in ("e", "f", "g"):
            return 3, {0: ("h", "efg".index(name))}
        if name == "d":
            precision, scale, bits = ([int(n) for n in rest.split(",")] + [128])[:3]
            return 7, {0: ("i", precision), 1: ("i", scale), 2: ("i", bits)}
        if name in ("tdD", "tdm"):
            return 8, {0: ("h", ("tdD", "tdm").index(name))}
        if name[:2] == "ts":
            zone = {1: self.text(rest.encode("utf-8", "surrogateescape"))} if rest else {}
            return 10, {0: ("h", _UNITS.index(name[2])), **zone}
        if name in ("tiM", "tiD", "tin"):
            return 11, {0: ("h", ("tiM", "tiD", "tin").index(name))}
        if name in ("+us", "+ud"):
            return 14, {0: ("h", "sd".index(name[2])), 1: self.numbers([int(c) for c in rest.split(",") if c])}
        if name in ("w", "+w"):
            return 15 if name == "w" else 16, {0: ("i", int(rest))}
        if name[:2] == "tD":
            return 18, {0: ("h", _UNITS.index(name[2]))}
        raise ValueError(f"the format {f.format!r}")


def encode(schema):
    """The stream of a schema."""
    w = _Writer()
    fields = w.tables([w.field(f) for f in schema.children])
    header = {1: fields, **({2: w.pairs(schema.metadata)} if schema.metadata else {})}
    w.table(0, {0: ("h", _V5), 1: ("B", _SCHEMA), 2: w.sub(header), 3: ("q", 0)})
    w.align(8)
    return _CONTINUATION + struct.pack("<I", len(w.b)) + bytes(w.b) + _CONTINUATION + bytes(4)
