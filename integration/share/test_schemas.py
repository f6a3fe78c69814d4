"""The reader of schemas, which hostile bytes must neither crash nor hold up."""

import random
import resource
import struct

import pyarrow as pa
import pytest

import fakes
import peer
from arrowdevice.share import BadTicket, ipc, wire
from arrowdevice.share.ticket import Ticket, seal


def of_every_type():
    fields = [pa.field(name, case.type, metadata={"k": "v"}) for name, case in peer.CASES.items()]
    return pa.schema(fields, metadata={"of": "schema"})


def same(a, b):
    assert (a.format, a.name, a.flags, a.metadata) == (b.format, b.name, b.flags, b.metadata)
    assert len(a.below()) == len(b.below())
    for x, y in zip(a.below(), b.below()):
        same(x, y)


def test_schemas_of_arrow_and_back():
    schema = of_every_type()
    field = ipc.decode(schema.serialize().to_pybytes())
    encoded = ipc.encode(field)
    assert pa.ipc.read_schema(pa.py_buffer(encoded)).equals(schema, check_metadata=True)
    assert pa.ipc.open_stream(encoded).read_all().num_rows == 0, "a stream without batches"
    same(ipc.decode(encoded), field)


def test_changed_bytes():
    """Each changed byte of a schema is read, or is a BadTicket."""
    refused = 0
    for encoded in (of_every_type().serialize().to_pybytes(), ipc.encode(ipc.decode(of_every_type().serialize().to_pybytes()))):
        for i in range(0, len(encoded), 41):
            changed = bytearray(encoded)
            changed[i] ^= (0x01, 0x80, 0x10, 0xFF, 0x7F)[i % 5]
            try:
                ipc.decode(changed)
            except BadTicket:
                refused += 1
    assert refused > 50


def test_trees_without_end():
    """Tables that refer to the same ones again: each byte is visited twice at most."""
    w = ipc._Writer()
    field = w.field(ipc.Field("+s", children=[ipc.Field("+s", children=[ipc.Field("i")])]))
    w.table(0, {0: ("h", 4), 1: ("B", 1), 2: w.sub({1: w.tables([field] * 2)}), 3: ("q", 0)})
    ipc.decode(struct.pack("<I", len(w.b)) + w.b)
    # A vector of 100,000 offsets to one field.
    w = ipc._Writer()
    w.table(0, {0: ("h", 4), 1: ("B", 1), 2: w.sub({1: lambda at: many(w, at)}), 3: ("q", 0)})
    with pytest.raises(BadTicket, match="more than its"):
        ipc.decode(struct.pack("<I", len(w.b)) + w.b)


def many(w, at):
    count = 100_000
    w.align(4)
    w.point(at)
    first = len(w.b) + 4
    w.b += struct.pack("<I", count) + bytes(4 * count)
    w.table(first, w.field(ipc.Field("i", b"a name" * 100)))
    target = first + struct.unpack_from("<I", w.b, first)[0]
    for i in range(1, count):
        struct.pack_into("<I", w.b, first + 4 * i, target - first - 4 * i)


def test_field_in_itself():
    """Children that lead back are nested too deeply."""
    w = ipc._Writer()
    fields = w.field(ipc.Field("+l", children=[ipc.Field("i")]))
    places = []
    inner = fields[5]
    fields[5] = lambda at: (places.append(at), inner(at))
    w.table(0, {0: ("h", 4), 1: ("B", 1), 2: w.sub({1: w.tables([fields] * 1)}), 3: ("q", 0)})
    w.b += bytes(20_000)  # that pay for many visits
    b = bytes(w.b)
    vector = places[0] + struct.unpack_from("<I", b, places[0])[0] + 4
    parent = next(at for at in range(0, places[0]) if at_field(b, at, places[0]))
    changed = bytearray(b)
    struct.pack_into("<I", changed, vector, (parent - vector) & 0xFFFFFFFF)
    with pytest.raises(BadTicket):
        ipc.decode(struct.pack("<I", len(changed)) + changed)


def at_field(b, at, place):
    """Whether a table is at a position, whose children are at a place."""
    try:
        vtable = at - struct.unpack_from("<i", b, at)[0]
        return vtable >= 0 and at + struct.unpack_from("<H", b, vtable + 4 + 2 * 5)[0] == place
    except struct.error:
        return False


@pytest.mark.parametrize(
    "stream",
    [b"", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\0\0\0\x70", b"\0\0\0\0", b"\4\0\0\0\0\0\0\0", b"\x08\0\0\0" + b"\xff" * 8],
)
def test_streams_that_have_no_schema(stream):
    with pytest.raises(BadTicket):
        ipc.decode(stream)


def test_random_tickets():
    """Any bytes with a checksum that fits are a ticket, or a BadTicket."""
    source = random.Random(33)
    real = wire.integer(1, 1) + wire.data(3, bytes(16)) + wire.data(5, bytes(16))
    schema = wire.data(9, ipc.encode(ipc.Field("+s", children=[ipc.Field("vu"), ipc.Field("+l", children=[ipc.Field("i")])])))
    column = b"".join([wire.integer(1, 3), wire.message(4, b""), wire.message(4, b""), wire.packed(5, [1, 2]), wire.message(6, b"")])
    for _ in range(3000):
        body = bytearray(schema + wire.message(8, wire.integer(2, 4096)) + wire.message(11, column) * 2 + wire.message(13, b"\x0a\1k"))
        for _ in range(source.randrange(4)):
            body[source.randrange(len(body))] = source.randrange(256)
        try:
            t = Ticket.decode(seal(real + bytes(body)))
            t.decode_rest()
        except BadTicket:
            pass


def test_tickets_of_many_arrays():
    """They take no more memory than the schema allows."""
    real = wire.integer(1, 1) + wire.data(3, bytes(16)) + wire.data(5, bytes(16))
    schema = wire.data(9, ipc.encode(ipc.Field("+s", children=[ipc.Field("i")])))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for column in (b"", b"\x22\0" * 100_000, b"\x32\0" * 100_000, b"\x3a\0" * 100_000):
        times = 300_000 if not column else 1
        body = real + schema + wire.message(11, column) * times
        with pytest.raises(BadTicket):
            t = Ticket.decode(seal(body[: (4 << 20) - 34]))
            t.decode_rest()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10, "KiB"


def test_fakes_change_nothing():
    """What the tests forge is what the owner has issued but for the changes."""
    from arrowdevice import share

    with share.share(pa.table({"a": [1]})) as shared:
        assert fakes.forged(shared.ticket) == shared.ticket
