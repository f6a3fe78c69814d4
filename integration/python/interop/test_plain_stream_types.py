"""Every type in every variant between Go and the peers, by plain streams: the values, and
the types that a peer makes of them."""

import contextlib
import ctypes

import pyarrow as pa
import pytest

import abi
import arrays
import peers
import transfer
from golib import GoBatch
from gostream import GoStream, released
from test_types import VARIANTS

CRASHES = [(peers.NANOARROW, name) for name in peers.VIEWS]  # test_defects.py
each_type = pytest.mark.parametrize(
    "peer, name",
    [pytest.param(peer, name, id=f"{peer}-{name}") for peer in peers.PEERS for name in arrays.CASES if (peer, name) not in CRASHES],
)


def two_of(name, variant):
    batch = arrays.CASES[name].batch(variant)
    return peers.Batches(batch, batch)


def held(peer, source, name):
    """The values and the schema that a peer reads from a stream: no schema if it does
    not return the case."""
    native = peer.take(source)
    if name in peer.keeps:
        return peer.rows(native), None
    table = peers.table(native)
    return table.to_pylist(), table.schema


@each_type
def test_go_arrives_in_a_peer(peer, name):
    """With the values that they are, and the type that the peer makes of PyArrow's."""
    for variant in VARIANTS:
        with GoBatch.make(name, variant) as item, GoStream.of([item, item]) as go:
            if not peer.takes_of_go(name, variant):
                with pytest.raises(BaseException):  # a panic of Rust is no Exception
                    held(peer, peers.Hidden(go), name)
                continue
            values, schema = held(peer, peers.Hidden(go), name)
        want = two_of(name, variant)
        as_pyarrow = values, schema
        if peer.takes_of_pyarrow(name, variant):
            as_pyarrow = held(peer, want, name)
        if name in peer.keeps or peer.does(peer.changes, name, variant):
            assert repr(values) == repr(as_pyarrow[0]), variant
        else:
            assert values == pa.table(want).to_pylist(), variant
        if not peer.converts_structs:
            assert schema == as_pyarrow[1], variant


MADE = {  # of the types that a peer does not have
    (peers.POLARS, "utf8"): pa.string_view(),
    (peers.POLARS, "binary"): pa.binary_view(),
    (peers.POLARS, "date64"): pa.timestamp("ms"),
    (peers.POLARS, "time32_s"): pa.time64("ns"),
    (peers.POLARS, "extension_uuid"): pa.binary_view(),
    (peers.DUCKDB, "duration_us"): pa.month_day_nano_interval(),
    (peers.DUCKDB, "timestamp_us_zone"): pa.timestamp("us", "Etc/UTC"),
    (peers.DUCKDB, "dictionary_int8"): pa.string(),
    (peers.DUCKDB, "run_end_encoded_int32"): pa.string(),
}


@pytest.mark.parametrize("peer, name", MADE, ids=str)
def test_types_that_a_peer_makes(peer, name):
    with GoBatch.make(name, "nulls") as item, GoStream.of([item]) as go:
        _, schema = held(peer, peers.Hidden(go), name)
    assert schema.types == [MADE[peer, name]] * 2


@each_type
def test_a_peer_arrives_in_go(peer, name):
    """With the memory that the peer gave, the values and the types."""
    for variant in VARIANTS:
        if name in peer.keeps:
            continue
        if not peer.takes_of_pyarrow(name, variant):
            with pytest.raises(BaseException):
                held(peer, two_of(name, variant), name)
            continue
        native = peer.take(two_of(name, variant))
        want = peers.table(native)
        with watched(native) as (stream, given), GoStream.take(ctypes.addressof(stream), plain=True, full_validation=True) as go:
            schema = go.describe()["fields"]
            with released(go) as items:
                assert all(addresses(item.buffers()) <= given for item in items), variant
                got = [transfer.to_pyarrow(item, "plain") for item in items]
        assert len(schema) == 2
        assert pa.Table.from_batches(got, want.schema).equals(want), variant
        assert all(batch.schema.equals(want.schema, check_metadata=True) for batch in got), variant


@contextlib.contextmanager
def watched(source):
    """The stream of an object, and the set of the addresses that its arrays have had."""
    capsule = source.__arrow_c_stream__()
    stream = abi.ArrowArrayStream.from_address(abi.capsule_pointer(capsule, "arrow_array_stream"))
    given, original = set(), abi.GET(stream.get_next)

    def get_next(self, out):
        answer = original(self, out)
        array = abi.ArrowArray.from_address(out)
        if answer == 0 and abi.is_filled(array):
            given.update(abi.buffer_addresses(array))
        return answer

    callback = abi.GET(get_next)
    stream.get_next = ctypes.cast(callback, ctypes.c_void_p).value
    yield stream, given
    assert not abi.is_filled(stream), "the consumer moves the stream"


def addresses(trees):
    """Those of the buffers that have bytes. Where there are no elements, either library may
    put another buffer."""
    found = set()
    for tree in filter(lambda tree: tree["length"], trees):
        found |= {b["address"] for b in tree["buffers"] if b["size"]}
        found |= addresses(tree["children"]) | addresses([tree["dictionary"]] if tree["dictionary"] else [])
    return found
