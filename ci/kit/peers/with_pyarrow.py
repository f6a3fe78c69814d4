"""PyArrow: through page-locked and host memory, and on the GPU if it was built with CUDA, which wheels are not."""

import numpy as np
import pyarrow as pa

import child
import golang
import peer
from compare import equal
from golang import ext

try:
    import pyarrow.cuda as pa_cuda
except ImportError as e:
    pa_cuda, _without = None, child.first_line(e)


class Peer(peer.Peer):
    name = "pyarrow"

    def __init__(self):
        super().__init__()
        self.version = f"PyArrow {pa.__version__}, {'with CUDA' if pa_cuda else 'without CUDA'}"

    def open(self):
        pass

    def checks(self):
        return [("through the GPU", _through), ("pinned and managed", _pinned), ("on the GPU", _on_gpu), ("refused without CUDA", _refused)]


def _batch():
    return pa.record_batch(
        {
            "n": pa.array([1, None, 3], pa.int64()),
            "s": pa.array(["x", None, "zzz"]),
            "l": pa.array([[1.5], None, []], pa.list_(pa.float64())),
            "d": pa.array(["a", "b", None]).dictionary_encode(),
            "t": pa.array([{"a": 1}, None, {"a": 3}], pa.struct([("a", pa.int32())])),
            "b": pa.array([True, None, False]),
        }
    )


def _through():
    batch = _batch()
    got = ext.echo_batch(batch).to_device("cuda:0").to_host().to_pyarrow()
    got.validate(full=True)
    assert got.equals(batch), got
    part = ext.echo_batch(batch.slice(1, 2)).to_device("cuda:0")[1:2].to_host().to_pyarrow()
    assert part.equals(batch.slice(2, 1)), part


def _pinned():
    for device in ("cuda_host:0", "cuda_managed:0"):
        made = ext.echo_batch(_batch()).to_device(device)
        made.synchronize()
        got = made.to_pyarrow()
        assert got.equals(_batch()), device
        del made, got


def _on_gpu():
    if pa_cuda is None:
        raise child.Skip(_without)
    made = golang.on_device(np.arange(1000))
    held = pa.array(made)
    assert held.buffers()[1].address == golang.address(made)
    back = ext.echo_array(held)
    assert golang.address(back) == golang.address(made)
    equal(golang.numbers(back), np.arange(1000))


def _refused():
    """It cannot take device memory then, and gives it back."""
    if pa_cuda is not None:
        raise child.Skip("PyArrow has CUDA")
    try:
        pa.array(golang.on_device(np.arange(10)))
    except Exception as e:
        return f"{type(e).__name__}: {child.first_line(e)[:120]}"
    return "it takes it all the same"
