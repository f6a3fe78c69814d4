"""Arrow Flight between PyArrow and Go, whose batches are on a GPU."""

import threading

import duckdb
import polars
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import arrays
import flightpeer

PATH = fl.FlightDescriptor.for_path("kept")


@pytest.fixture(scope="module")
def go():
    with flightpeer.server() as client:
        yield client


def put(client, table, options=None):
    writer, reader = client.do_put(PATH, table.schema, options=options)
    with writer:
        for batch in table.to_batches() if isinstance(table, pa.Table) else table:
            writer.write_batch(batch)
        writer.done_writing()
        return reader.read().to_pybytes()


def get(client):
    return client.do_get(fl.Ticket(b"kept")).read_all()


def orders(rows=1000):
    return pa.table({"n": pa.array(range(rows)), "s": pa.array([None if i % 7 == 0 else f"order {i}" for i in range(rows)])})


def test_put_and_get(go):
    table = pa.concat_tables([orders(10), orders(1000)])
    assert put(go, table) == b"2 batches"
    assert get(go).equals(table)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed(go, codec):
    put(go, orders(), fl.FlightCallOptions(write_options=pa.ipc.IpcWriteOptions(compression=codec)))
    assert get(go).equals(orders())


def test_large_batches(go):
    """Go sends them in parts, PyArrow sends them whole."""
    table = orders(1_000_000)
    assert put(go, table) == b"1 batches"
    assert get(go).equals(table)
    assert get(go).column(0).num_chunks > 2


@pytest.mark.parametrize("name", arrays.CASES)
def test_every_type(go, name):
    table = pa.Table.from_batches(arrays.CASES[name].batch(variant) for variant in ("nulls", "sliced", "empty"))
    put(go, table)
    back = get(go)
    assert back.schema.equals(table.schema)
    assert [b.to_pydict() for b in back.to_batches()] == [b.to_pydict() for b in table.to_batches()]


def test_dictionaries_that_change(go):
    batches = [
        pa.record_batch({"d": pa.DictionaryArray.from_arrays(pa.array([0, None, len(words) - 1], pa.int8()), words)})
        for words in (["a", "b"], ["a", "b"], ["a", "b", "c"], ["other"])
    ]
    for deltas in False, True:
        options = fl.FlightCallOptions(write_options=pa.ipc.IpcWriteOptions(emit_dictionary_deltas=deltas))
        writer, reader = go.do_put(PATH, batches[0].schema, options=options)
        with writer:
            for batch in batches:
                writer.write_batch(batch)
            writer.done_writing()
            reader.read()
        assert get(go).to_pydict() == pa.Table.from_batches(batches).to_pydict()


def test_exchange_with_metadata(go):
    writer, reader = go.do_exchange(PATH)
    batch = orders(5).to_batches()[0]
    with writer:
        writer.begin(batch.schema)
        for i in range(3):
            writer.write_with_metadata(batch, f"batch {i}".encode())
            chunk = reader.read_chunk()
            assert chunk.data.equals(batch)
            assert chunk.app_metadata.to_pybytes() == f"batch {i}".encode()
        writer.done_writing()
        with pytest.raises(StopIteration):
            reader.read_chunk()


def test_errors(go):
    with pytest.raises(KeyError, match="no batches"):
        go.do_get(fl.Ticket(b"others")).read_all()


CAUSES = {
    "invalid": pa.ArrowInvalid,
    "type": pa.ArrowInvalid,
    "unimplemented": NotImplementedError,
    "unsupported": NotImplementedError,
    "missing": KeyError,
    "key": KeyError,
    "limit": pa.ArrowInvalid,
    "memory": pa.ArrowInvalid,
    "gone": fl.FlightUnavailableError,
    "another": fl.FlightError,
}


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("text", ["x", "漢", "%"])
def test_long_errors(go, cause, text):
    """PyArrow's gRPC refuses at random the end of a stream that has more than 8 KiB."""
    ticket = fl.Ticket(f"error {cause} {text * (100_000 // len(text.encode()))}".encode())
    for _ in range(20):
        with pytest.raises(CAUSES[cause]) as raised:
            go.do_get(ticket).read_all()
        assert text * 500 in str(raised.value)


def test_a_cancelled_read_leaves_nothing(go):
    put(go, orders(1_000_000))
    for _ in range(5):
        reader = go.do_get(fl.Ticket(b"kept"))
        reader.read_chunk()
        reader.cancel()
    assert get(go).num_rows == 1_000_000


def test_behind_the_peer(go):
    """polars and DuckDB read what came from Go."""
    put(go, orders())
    rows = get(go)
    assert polars.from_arrow(rows)["n"].sum() == sum(range(1000))
    assert duckdb.sql("select sum(n) from rows").fetchall() == [(sum(range(1000)),)]
    put(go, duckdb.sql("select range as n from range(1000)").to_arrow_table())
    assert get(go)["n"].to_pylist() == list(range(1000))
    put(go, polars.DataFrame({"n": range(1000)}).to_arrow())
    assert get(go)["n"].to_pylist() == list(range(1000))


class Server(fl.FlightServerBase):
    """A server of PyArrow's."""

    def __init__(self):
        super().__init__("grpc://127.0.0.1:0")
        self.table = orders(1_000_000)
        self.put = None

    def do_get(self, context, ticket):
        assert ticket.ticket == b"all"
        return fl.RecordBatchStream(self.table)

    def do_put(self, context, descriptor, reader, writer):
        assert descriptor.path == [b"back"]
        self.put = reader.read_all()

    def do_exchange(self, context, descriptor, reader, writer):
        writer.begin(reader.schema)
        for chunk in reader:
            writer.write_batch(chunk.data)


def test_server_of_pyarrow():
    with Server() as server:
        thread = threading.Thread(target=server.serve)
        thread.start()
        said = flightpeer.client(f"127.0.0.1:{server.port}")
        server.shutdown()
        thread.join()
        assert "rows on cuda:0" in said
        assert sum(int(line.split()[0]) for line in said.splitlines()) == 1_000_000
        assert server.put.combine_chunks().equals(server.table.combine_chunks())
        server.put = server.table = None
