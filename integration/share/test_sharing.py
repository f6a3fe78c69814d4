"""What share() makes of the objects that it is given: the same rows at the other end, or an error and no ticket."""

import ast
import ctypes
import gc
import math
import os
import socket

import pyarrow as pa
import pytest

import abi
import fakes
import machines
from arrowdevice import share
from arrowdevice.share import cdata, memory, owner, source

READER = """
import sys
import pyarrow as pa
from arrowdevice import share
for line in sys.stdin:
    with share.open(bytes.fromhex(line)) as opened:
        batch = pa.record_batch(opened)
    batch.validate(full=True)
    print(batch.to_pylist(), flush=True)
    del batch
"""


@pytest.fixture(scope="module")
def rows():
    """Shares data, and returns the rows that another process reads."""
    with machines.program(READER) as process:

        def rows(data):
            with share.share(data) as shared:
                process.stdin.write(shared.ticket.hex() + "\n")
                process.stdin.flush()
                read = ast.literal_eval(process.stdout.readline())
                shared.wait(machines.LIMIT)
                return read

        yield rows


class Exporter:
    """An object that exports the structs of another one, once. array and columns can be changed before."""

    def __init__(self, source):
        self.capsules = source.__arrow_c_array__()
        self.schema = cdata.ArrowSchema.from_address(abi.capsule_pointer(self.capsules[0], "arrow_schema"))
        self.array = cdata.ArrowArray.from_address(abi.capsule_pointer(self.capsules[1], "arrow_array"))

    def __arrow_c_array__(self, requested_schema=None):
        return self.capsules


def batches(count):
    return [pa.record_batch({"a": [2 * i, 2 * i + 1], "s": [str(i), None]}) for i in range(count)]


@pytest.mark.parametrize("count", range(5))
def test_streams_are_read_once(rows, count):
    """Each row of a reader arrives, which has its batches only once."""
    of = batches(count)
    gc.collect()
    before = pa.total_allocated_bytes()
    reader = pa.RecordBatchReader.from_batches(batches(1)[0].schema, iter(of))
    assert rows(reader) == [row for batch in of for row in batch.to_pylist()]
    with pytest.raises(StopIteration):
        reader.read_next_batch()
    del reader
    gc.collect()
    assert pa.total_allocated_bytes() <= before, "the batches are released"


def test_streams_of_empty_batches(rows):
    schema = batches(1)[0].schema
    nothing = pa.RecordBatch.from_pylist([], schema=schema)
    assert rows(pa.RecordBatchReader.from_batches(schema, [nothing] * 3)) == []
    some = batches(2)
    assert rows(pa.RecordBatchReader.from_batches(schema, [nothing, *some, nothing])) == pa.Table.from_batches(some).to_pylist()


def test_streams_that_fail():
    """The error is the stream's, and nothing is kept, whichever batch it comes with."""
    for good in range(4):

        def failing(good=good):
            yield from batches(good)
            raise OSError("no more of it")

        gc.collect()
        before = pa.total_allocated_bytes()
        with pytest.raises(OSError, match="no more of it"):
            share.share(pa.RecordBatchReader.from_batches(batches(1)[0].schema, failing()))
        gc.collect()
        assert pa.total_allocated_bytes() == before


def test_streams_that_cannot_be_combined(monkeypatch):
    chunks = pa.chunked_array([pa.array([1]), pa.array([2])])
    with pytest.raises(share.NotShareable, match="the type 'l', want a record batch"):
        share.share(chunks)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(share.NotShareable, match="several batches needs PyArrow"):
        share.share(pa.Table.from_batches(batches(2)))
    with share.share(pa.Table.from_batches(batches(1))):
        pass


def test_no_batches(rows):
    """A stream without batches, and tables without chunks, of types with each kind of layout."""
    types = {
        "utf8": pa.utf8(), "view": pa.string_view(), "list": pa.list_(pa.int8()), "fixed": pa.list_(pa.bool_(), 3), "null": pa.null(),
        "struct": pa.struct([("x", pa.binary()), ("y", pa.int8())]), "dictionary": pa.dictionary(pa.int8(), pa.utf8()),
        "dense": pa.dense_union([pa.field("p", pa.int8())]), "sparse": pa.sparse_union([pa.field("q", pa.utf8())]),
        "runs": pa.run_end_encoded(pa.int16(), pa.utf8()), "map": pa.map_(pa.utf8(), pa.int8()), "list_view": pa.list_view(pa.int8()),
    }  # fmt: skip
    schema = pa.schema(list(types.items()))
    for data in (batches(1)[0].schema.empty_table(), pa.Table.from_batches([], schema), pa.RecordBatchReader.from_batches(schema, [])):
        assert rows(data) == []
    with machines.process("go") as reader:
        with share.share(pa.RecordBatchReader.from_batches(schema, [])) as shared:
            assert reader.open(shared.ticket) == "opened 0"
            reader.ask("release")
            shared.wait(machines.LIMIT)


def structs():
    return pa.StructArray.from_arrays([pa.array(range(20))], ["a"], mask=pa.array([i == 9 for i in range(20)]))


def test_structs_whose_nulls_are_not_counted(rows):
    """null_count = -1: the bitmap says whether there are nulls."""
    for start, length, has_nulls in ((0, 20, True), (9, 1, True), (10, 10, False), (0, 9, False), (3, 7, True), (10, 0, False)):
        data = Exporter(structs().slice(start, length))
        data.array.null_count = -1
        if has_nulls:
            with pytest.raises(share.NotShareable, match="without nulls"):
                share.share(data)
        else:
            assert rows(data) == [{"a": i} for i in range(start, start + length)]


_NO_RELEASE = cdata.RELEASE(lambda address: None)
_INT64 = ctypes.sizeof(ctypes.c_int64)


@pytest.fixture
def lie():
    """A batch whose structs can be changed: set(struct, field, value), and put(address, index, value) in an array of pointers or
    integers. Its producer releases them as they were."""
    columns = {
        "s": pa.array(["a", "bb", None]), "i": pa.array([1, None, 3]), "v": pa.array(["a" * 20, "b" * 30, None], pa.string_view()),
        "l": pa.array([[1], None, [2, 3]]), "d": pa.array(["x", "y", "x"]).dictionary_encode(),
        "o": pa.array([b"1", b"2", b""], pa.large_binary()),
        "r": pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int16()), pa.array(["x", None])),
        "u": pa.UnionArray.from_dense(pa.array([0, 0, 0], pa.int8()), pa.array([0, 1, 2], pa.int32()), [pa.array([1, 2, 3])]),
    }  # fmt: skip
    liar = Liar(pa.record_batch(columns))
    yield liar
    liar.undo()


class Liar(Exporter):
    def __init__(self, source):
        super().__init__(source)
        self.undone, self.releases = [], [(struct, struct.release) for struct in (self.schema, self.array)]
        self.schema.release = self.array.release = ctypes.cast(_NO_RELEASE, ctypes.c_void_p).value

    def set(self, struct, name, value):
        self.undone.append((setattr, struct, name, getattr(struct, name)))
        setattr(struct, name, value)

    def put(self, address, index, value):
        place = ctypes.c_int64.from_address(address + _INT64 * index)
        self.set(place, "value", value)

    def column(self, name, *path):
        """The array of a column, or one below it."""
        array = self.array
        for i in ("sivldoru".index(name), *path):
            at = array.dictionary if i == "dictionary" else ctypes.c_void_p.from_address(array.children + 8 * i).value
            array = cdata.ArrowArray.from_address(at)
        return array

    def field(self, name):
        return cdata.ArrowSchema.from_address(ctypes.c_void_p.from_address(self.schema.children + 8 * "sivldoru".index(name)).value)

    def undo(self):
        for function, *arguments in reversed(self.undone):
            function(*arguments)
        for struct, release in self.releases:
            struct.release = release


LIES = {
    "array.length = -1": lambda d: d.set(d.array, "length", -1),
    "array.offset = -1": lambda d: d.set(d.array, "offset", -1),
    "array.n_buffers = 3, want 1": lambda d: d.set(d.array, "n_buffers", 3),
    "array.buffers = 0x0": lambda d: d.set(d.array, "buffers", None),
    "array.n_children = 7, want 8": lambda d: d.set(d.array, "n_children", 7),
    "array.n_children = 9, want 8": lambda d: d.set(d.array, "n_children", 9),
    "array.n_children = -1": lambda d: d.set(d.array, "n_children", -1),
    "array.children = 0x0": lambda d: d.set(d.array, "children", None),
    "array.children[1] = NULL": lambda d: d.put(d.array.children, 1, 0),
    "array.children[1].release = NULL": lambda d: d.set(d.column("i"), "release", None),
    "array.null_count = 3, want 0": lambda d: d.set(d.array, "null_count", 3),
    "array.null_count = 4, want -1 to 3": lambda d: d.set(d.array, "null_count", 4),
    "columns[0].length = 3, want at least 2000, the rows": lambda d: d.set(d.array, "length", 2000),
    "columns[0].length = 3, want at least 503, the rows": lambda d: d.set(d.array, "offset", 500),
    "columns[1].length = 1, want at least 3, the rows": lambda d: d.set(d.column("i"), "length", 1),
    "columns[1].offset = -1": lambda d: d.set(d.column("i"), "offset", -1),
    f"columns[1].offset = {(1 << 63) - 1}": lambda d: d.set(d.column("i"), "offset", (1 << 63) - 1),
    f"columns[1].buffers[1] = {(1 << 48) + 24} bytes": lambda d: d.set(d.column("i"), "offset", 1 << 45),
    "columns[1].null_count = 99": lambda d: d.set(d.column("i"), "null_count", 99),
    "columns[1].null_count = -5": lambda d: d.set(d.column("i"), "null_count", -5),
    "columns[1].n_buffers = 1, want 2": lambda d: d.set(d.column("i"), "n_buffers", 1),
    "columns[1].n_buffers = 3, want 2": lambda d: d.set(d.column("i"), "n_buffers", 3),
    "columns[1].n_buffers = -1": lambda d: d.set(d.column("i"), "n_buffers", -1),
    "columns[2].n_buffers = 2, want at least 3": lambda d: d.set(d.column("v"), "n_buffers", 2),
    "columns[7].n_buffers = 1, want 2": lambda d: d.set(d.column("u"), "n_buffers", 1),
    "columns[1].buffers = 0x0": lambda d: d.set(d.column("i"), "buffers", None),
    "columns[1].buffers = 0x1": lambda d: d.set(d.column("i"), "buffers", 1),
    "columns[1].buffers[0] = NULL": lambda d: d.put(d.column("i").buffers, 0, 0),
    "columns[1].buffers[1] = NULL": lambda d: d.put(d.column("i").buffers, 1, 0),
    "columns[0].buffers[1] = NULL": lambda d: d.put(d.column("s").buffers, 1, 0),
    "columns[0].buffers[2] = NULL": lambda d: d.put(d.column("s").buffers, 2, 0),
    "columns[7].buffers[0] = NULL": lambda d: d.put(d.column("u").buffers, 0, 0),
    "columns[5].buffers[1][3] = -1": lambda d: d.put(_pointer(d.column("o"), 1), 3, -1),
    f"columns[5].buffers[1][3] = {1 << 50}": lambda d: d.put(_pointer(d.column("o"), 1), 3, 1 << 50),
    "columns[5].buffers[1][3] = 2, want an offset from 3": lambda d: d.put(_pointer(d.column("o"), 1), 0, 3),
    "columns[5].buffers[1][3] = 2, want an offset from 0": lambda d: d.put(_pointer(d.column("o"), 1), 0, -3),
    "columns[2].buffers[3] = 0x0": lambda d: d.put(d.column("v").buffers, 3, 0),
    "columns[2].buffers[2] = NULL": lambda d: d.put(d.column("v").buffers, 2, 0),
    "columns[2].buffers[3][0] = -7": lambda d: d.put(_pointer(d.column("v"), 3), 0, -7),
    f"columns[2].buffers[3][0] = {1 << 48}": lambda d: d.put(_pointer(d.column("v"), 3), 0, 1 << 48),
    "columns[3].children[0].null_count = 4": lambda d: d.set(d.column("l", 0), "null_count", 4),
    "columns[4].dictionary = NULL, want one": lambda d: d.set(d.column("d"), "dictionary", None),
    "columns[1].dictionary = one, want NULL": lambda d: d.set(d.column("i"), "dictionary", d.column("d").dictionary),
    "columns[4].dictionary.release = NULL": lambda d: d.set(d.column("d", "dictionary"), "release", None),
    "schema.children[1].release = NULL": lambda d: d.set(d.field("i"), "release", None),
    "schema.children[1].format = NULL": lambda d: d.set(d.field("i"), "format", None),
    "schema.n_children = -1": lambda d: d.set(d.schema, "n_children", -1),
    "schema.children = 0x0": lambda d: d.set(d.schema, "children", None),
    "schema.children[1] = NULL": lambda d: d.put(d.schema.children, 1, 0),
    "schema.children[3].n_children = 0, want 1": lambda d: d.set(d.field("l"), "n_children", 0),
    "schema.children[1].format = '?'": lambda d: d.set(d.field("i"), "format", _text(b"?")),
    "schema.children[4].format = 'g'": lambda d: d.set(d.field("d"), "format", _text(b"g")),
    "a decimal of 128 bits with the precision 99": lambda d: d.set(d.field("i"), "format", _text(b"d:99,1,128")),
    "schema.children[1].metadata: the size -1": lambda d: d.set(d.field("i"), "metadata", _text(b"\xff" * 4)),
    "the arrow_array was released already": lambda d: d.set(d.array, "release", None),
    "the arrow_schema was released already": lambda d: d.set(d.schema, "release", None),
}  # fmt: skip


def _pointer(array, i):
    return ctypes.c_void_p.from_address(array.buffers + 8 * i).value


_texts = []


def _text(value):
    _texts.append(ctypes.create_string_buffer(value))
    return ctypes.addressof(_texts[-1])


@pytest.mark.parametrize("says", LIES)
def test_objects_that_lie(lie, says):
    """An error names the field, before what it leads to is read, and there is no ticket."""
    LIES[says](lie)
    with pytest.raises(share.NotShareable) as raised:
        share.share(lie)
    assert says in str(raised.value)
    assert not owner._owner.by_token


def test_unions_by_producers_of_old(rows):
    """They have a validity bitmap in front, or NULL."""
    unions = [
        pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])]),
        pa.UnionArray.from_dense(pa.array([0, 0], pa.int8()), pa.array([1, 2], pa.int32()), [pa.array([1, 2, 3])]),
    ]
    liar = Liar(pa.record_batch(unions, ["s", "d"]))
    kept = []
    for i in range(2):
        union = cdata.ArrowArray.from_address(ctypes.c_void_p.from_address(liar.array.children + 8 * i).value)
        kept.append((ctypes.c_void_p * 3)(None, *(_pointer(union, k) for k in range(union.n_buffers))))
        liar.set(union, "buffers", ctypes.addressof(kept[i]))
        liar.set(union, "n_buffers", union.n_buffers + 1)
    assert rows(liar) == [{"s": 1, "d": 2}, {"s": 2, "d": 3}]
    liar.undo()


def dictionary(values):
    return pa.record_batch({"d": pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), values)})


def nested(depth):
    array = pa.array([1])
    for _ in range(depth):
        array = pa.StructArray.from_arrays([array], ["x"])
    return pa.record_batch({"a": array})


def test_types_without_a_place_in_tickets():
    for data, says in (
        (dictionary(pa.array(["a"]).dictionary_encode()), "a dictionary themselves"),
        (dictionary(pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)], pa.binary(16)))), "of an extension type"),
        (nested(64), "nested more than 64 deep"),
        (nested(70), "nested more than 64 deep"),
    ):
        with pytest.raises(share.NotShareable, match=says):
            share.share(data)


def test_streams_without_functions():
    for name in ("get_schema", "get_next", "get_last_error"):
        capsule = pa.table({"a": [1]}).__arrow_c_stream__()
        stream = cdata.ArrowArrayStream.from_address(abi.capsule_pointer(capsule, "arrow_array_stream"))
        setattr(stream, name, None)
        source = type("Stream", (), {"__arrow_c_stream__": lambda self, requested_schema=None: capsule})()
        with pytest.raises(share.NotShareable, match="ArrowArrayStream.*NULL"):
            share.share(source)


def test_arguments():
    data = pa.table({"a": [1]})
    for openers in (1.5, True, "2", None):
        with pytest.raises(TypeError, match="openers = "):
            share.share(data, openers=openers)
    for openers in (0, -1):
        with pytest.raises(ValueError, match=f"openers = {openers}"):
            share.share(data, openers=openers)
    with pytest.raises(TypeError, match="data = int"):
        share.share(5)
    with share.share(data) as shared:
        for wait in (shared.wait, shared.wait_opened):
            for timeout in (math.inf, math.nan, 1e10):
                with pytest.raises(ValueError, match="timeout = "):
                    wait(timeout)
            with pytest.raises(TypeError, match="timeout = '1'"):
                wait("1")
            with pytest.raises(TimeoutError):
                wait(0)


def test_refused_arguments_take_nothing():
    reader = pa.RecordBatchReader.from_batches(batches(1)[0].schema, batches(2))
    with pytest.raises(ValueError, match="openers"):
        share.share(reader, openers=0)
    assert reader.read_all().num_rows == 4


def descriptors():
    machines.settle()
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("fails", ["bind", "listen", "call"])
def test_sockets_that_fail(monkeypatch, fails):
    """The next batch is shared as if nothing had been."""
    with share.share(pa.table({"a": [1]})):  # from here on the thread has all that it needs
        pass
    machines.eventually(lambda: not owner._owner.connections)
    gc.collect()
    before = descriptors()

    class Socket(socket.socket):
        def bind(self, address):
            return refuse() if fails == "bind" else super().bind(address)

        def listen(self, backlog):
            return refuse() if fails == "listen" else super().listen(backlog)

    def refuse(*_):
        raise OSError("refused")

    with monkeypatch.context() as patch:
        patch.setattr(owner.socket, "socket", Socket)
        if fails == "call":
            patch.setattr(owner.loop, "call", refuse)
        with pytest.raises(OSError, match="refused"):
            share.share(pa.table({"a": [1]}))
    assert not owner._owner.connections and not owner._owner.by_token
    assert descriptors() == before
    with share.share(pa.table({"a": [1]})) as shared, fakes.Opener(shared.ticket) as opener:
        assert opener.request() == b"\1"
        opener.send(b"r")
        shared.wait(machines.LIMIT)


def test_encoding_keeps_no_opener_waiting(monkeypatch):
    """A wide table takes seconds; another batch is opened meanwhile."""
    small, encode, replies = share.share(pa.table({"a": [1]})), source.encode, []

    def slow(ticket):
        with fakes.Opener(small.ticket) as opener:
            replies.append(opener.request())
            opener.send(b"r")
        return encode(ticket)

    monkeypatch.setattr(source, "encode", slow)
    with share.share(pa.table({"b": [1]})):
        assert replies == [b"\1"]
    small.wait(machines.LIMIT)


WHOLE = 1 << 14  # rows, of which slices are shared
SLICED = {
    "int64": (pa.array([None if i % 7 == 0 else i for i in range(WHOLE)]), 1),
    "bool": (pa.array([i % 3 == 0 for i in range(WHOLE)]), 1),
    "binary of fixed size": (pa.array([b"%05d" % i for i in range(WHOLE)], pa.binary(5)), 1),
    "texts": (pa.array([None if i % 5 == 0 else str(i) for i in range(WHOLE)]), 20),
    "views": (pa.array([str(i) for i in range(WHOLE)], pa.string_view()), 1),
    "dictionary": (pa.array([f"{i % 9}" for i in range(WHOLE)]).dictionary_encode(), 1),
    "list": (pa.array([[i] for i in range(WHOLE)], pa.list_(pa.int16())), 10),
    "list view": (pa.array([[i] for i in range(WHOLE)], pa.list_view(pa.int16())), 10),
    "dense union": (
        pa.UnionArray.from_dense(pa.array([0] * WHOLE, pa.int8()), pa.array(range(WHOLE), pa.int32()), [pa.array([1] * WHOLE, pa.int8())]),
        10,
    ),
    "struct": (pa.StructArray.from_arrays([pa.array(range(WHOLE))], ["x"], mask=pa.array([i % 5 == 0 for i in range(WHOLE)])), 40),
    "sparse union": (pa.UnionArray.from_sparse(pa.array([0] * WHOLE, pa.int8()), [pa.array(range(WHOLE))]), 40),
    "list of fixed size": (pa.array([[i, i] for i in range(WHOLE)], pa.list_(pa.int32(), 2)), 40),
    "runs": (pa.RunEndEncodedArray.from_arrays(pa.array(range(1, WHOLE + 1), pa.int32()), pa.array(range(WHOLE))), 60),
    "nulls": (pa.nulls(WHOLE), 1),
}


@pytest.mark.parametrize("kind", SLICED)
@pytest.mark.parametrize("start, length", [(WHOLE - 13, 13), (WHOLE - 16, 5), (3, 9), (WHOLE - 8, 0), (8, 8)])
def test_slices(rows, kind, start, length):
    """They have the same rows, and memory for little more than these where the type allows it."""
    array, pages = SLICED[kind]
    data = pa.record_batch({"c": array}).slice(start, length)
    assert rows(data) == data.to_pylist()
    with share.share(data) as shared:
        assert sum(region.size for region in fakes.content(shared.ticket).regions) <= pages * 4096


def test_slices_of_shared_memory_stay_where_they_are():
    memory = share.allocate(8 * 100)
    array = pa.Array.from_buffers(pa.int64(), 100, [None, pa.py_buffer(memory)])
    with share.share(pa.record_batch({"a": array}).slice(50)) as shared:
        t = fakes.content(shared.ticket)
        assert (t.columns[0].offset, t.columns[0].buffers[1], len(t.regions)) == (50, (1, 0), 1)


def test_other_shared_memory_is_not_kept():
    """Only what the batch lies in is."""
    for data in (pa.table({"a": [1]}), pa.RecordBatchReader.from_batches(batches(1)[0].schema, [])):
        other = share.allocate(8)
        with share.share(data):
            address = fakes.address(other)
            del other
            assert memory.Allocated().find(address) is None
