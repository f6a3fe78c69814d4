"""What share() makes of the objects that it is given: the same rows at the other end, or an error and no ticket."""

import ast
import gc

import pyarrow as pa
import pytest

import abi
import machines
from arrowdevice import share
from arrowdevice.share import cdata

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
    assert rows(pa.RecordBatchReader.from_batches(schema, [nothing, *batches(2), nothing])) == pa.table(pa.Table.from_batches(batches(2))).to_pylist()


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
