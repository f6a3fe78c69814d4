"""nanoarrow: it holds Go's arrays with their events, and hands them on. Wheels have no CUDA, and need none for that."""

import nanoarrow
import numpy as np
from nanoarrow.device import DeviceType, c_device_array

import golang
import peer
import pending
from compare import equal
from golang import ext
from hold import Hold


class Peer(peer.Peer):
    name = "nanoarrow"

    def __init__(self):
        super().__init__()
        self.version = f"nanoarrow {nanoarrow.__version__}"

    def open(self):
        pass

    def checks(self):
        return [("pending through nanoarrow", _pending), ("types there and back", _types), ("batches", _batches), ("kept", _kept)]


def _pending():
    """Go's copy is pending when Go takes the array back from nanoarrow: the event went with it."""
    first = pending.next_first()
    with Hold() as held:
        taken = ext.echo_array(c_device_array(pending.copied_by_go(first, held)))
        pending.expect_pending(taken, held)
        got = held.opened_during(golang.numbers, taken)
    equal(got, pending.numbers(first))


def _types():
    for name in peer.TYPES:
        want = np.arange(1, 101).astype(name)
        made = golang.on_device(want)
        held = c_device_array(made)
        assert (held.device_type, held.device_id) == (DeviceType.CUDA, 0), name
        taken = ext.echo_array(held)
        assert golang.address(taken) == golang.address(made), name
        equal(golang.numbers(taken[5:50]), want[5:50])


def _batches():
    """A batch of columns with strings and nulls."""
    columns = {
        "a": nanoarrow.c_array([1, None, 3], nanoarrow.int64()),
        "b": nanoarrow.c_array(["x", None, "zzz"], nanoarrow.string()),
    }
    schema = nanoarrow.struct({"a": nanoarrow.int64(), "b": nanoarrow.string()})
    batch = nanoarrow.c_array_from_buffers(schema, 3, [None], children=list(columns.values()))
    made = ext.echo_batch(batch).to_device("cuda:0")
    back = ext.echo_batch(c_device_array(made))
    assert back.device == "cuda:0"
    assert nanoarrow.Array(back.to_host()).to_pylist() == nanoarrow.Array(batch).to_pylist()


def _kept():
    made = golang.on_device(np.arange(1000))
    held = c_device_array(made)
    made.close()
    golang.settle()
    others = [golang.on_device(np.zeros(1000, "i8")) for _ in range(4)]
    equal(golang.numbers(ext.echo_array(held)), np.arange(1000))
    del others
