"""Memory of a device, of the simulated CUDA driver: the host never touches it without being asked to. The program
runs in a process of its own, with the driver that DEVICE_DRIVER names."""

import os

import pytest

from processes import ended

PROGRAM = """
import gc, time
import numpy
import polars
BATCH = pa.record_batch({"a": [1, 2, 3], "b": ["x", "y", None]})

def refused(error, text, use):
    try:
        use()
    except error as e:
        assert text in str(e), str(e)
    else:
        raise AssertionError("no error")

host = ext.echo_batch(BATCH)
gpu = host.to_device("cuda:0")
assert gpu.device == "cuda:0" and repr(gpu) == "<arrowdevice.RecordBatch: 3 rows of a, b on cuda:0>"

# A consumer that knows no devices does not get it, and says so at once.
array, reader = gpu["a"], ext.echo_reader(host).to_device("cuda")
offered = {
    name: [m for m in ("array", "stream", "device_array", "device_stream") if hasattr(made, f"__arrow_c_{m}__")]
    for name, made in (("batch", gpu), ("array", array), ("reader", reader))
}
assert offered == {"batch": ["device_array"], "array": ["device_array"], "reader": ["device_stream"]}, offered
assert reader.device == "cuda"
for use in (gpu.to_pyarrow, array.to_pyarrow, reader.to_pyarrow):
    refused(TypeError, "call to_host() first", use)
refused(Exception, "", lambda: polars.DataFrame(gpu))
refused(TypeError, "call to_host() first", lambda: ext.host_rows(gpu))

# It comes back when asked.
assert gpu.to_host().to_pyarrow() == BATCH
assert array.to_host().to_pyarrow() == BATCH["a"]
assert gpu[1:].to_host().to_pyarrow() == BATCH[1:]
assert pa.table(reader.to_host()).to_batches() == [BATCH]
gpu.synchronize()

# As an argument, by the handle and by capsules.
class Other:
    def __init__(self, of):
        self._of = of
    def __getattr__(self, name):
        if not name.startswith("__arrow_c_"):
            raise AttributeError(name)
        return getattr(self._of, name)

for value in (gpu, Other(gpu)):
    assert ext.echo_batch(value).device == "cuda:0"
    assert ext.echo_reader(value).read_all()[0].to_host().to_pyarrow() == BATCH
assert ext.echo_reader(Other(host.to_device("cuda"))).device == "cuda"
assert ext.echo_reader(Other(ext.echo_reader([gpu]))).device == "cuda"

# A source of device memory, which must stay there.
assert [b.device for b in ext.echo_reader(gpu for _ in range(2))] == ["cuda:0"] * 2
refused(ValueError, "is in memory of cpu, and the first batch of cuda", lambda: ext.count([gpu, host]))

# The tensor protocols.
assert array.__dlpack_device__() == (2, 0)
refused(BufferError, "call to_host()", lambda: array.__dlpack__(dl_device=(1, 0)))
assert "dltensor_versioned" in repr(array.__dlpack__(max_version=(1, 1), stream=1))
assert ext.echo_array(array).device == "cuda:0"

class Tensor:
    __slots__ = ("_of", "streams")
    def __init__(self, of):
        self._of, self.streams = of, []
    def __dlpack_device__(self):
        return self._of.__dlpack_device__()
    def __dlpack__(self, *, stream=None, max_version=None):
        self.streams.append(stream)
        return self._of.__dlpack__(stream=stream, max_version=max_version)

tensor = Tensor(array)
assert ext.echo_array(tensor).to_host().to_pyarrow().to_pylist() == [1, 2, 3]
assert tensor.streams == [1]

interface = array.__cuda_array_interface__
assert (interface["shape"], interface["typestr"], interface["version"]) == ((3,), "<i8", 3), interface
assert type(interface["data"]) is tuple and interface["data"][0] % 8 == 0
refused(AttributeError, "which CUDA cannot access", lambda: host["a"].__cuda_array_interface__)

class Owner:
    alive = 0
    def __init__(self, of):
        self._of = of
        Owner.alive += 1
    @property
    def __cuda_array_interface__(self):
        return {**self._of.__cuda_array_interface__, "own": object()}  # keys that the protocol does not have are ignored
    def __del__(self):
        Owner.alive -= 1

taken = ext.echo_array(Owner(array))
assert Owner.alive == 1
assert taken.to_host().to_pyarrow().to_pylist() == [1, 2, 3]
refused(Exception, "echo_array: argument array: ", lambda: ext.echo_array(type("Bad", (), {"__cuda_array_interface__": {}})()))
taken.close()

# A mask is kept, also one that is a tuple, whatever becomes of the dict that has it, and so is its own dict.
class Interface(dict):
    alive = 0
    def __init__(self, entries):
        super().__init__(entries)
        Interface.alive += 1
    def __del__(self):
        Interface.alive -= 1

class Masked:
    def __init__(self, entries):
        self.__cuda_array_interface__ = entries

class Mask(tuple):
    alive = []  # their lengths
    def __init__(self, _):
        Mask.alive.append(len(self))
    @property
    def __cuda_array_interface__(self):
        return Interface({"shape": (3,), "typestr": "<t1", "data": self[0], "version": 3})
    def __del__(self):
        Mask.alive.remove(len(self))

bits = ext.echo_batch(pa.record_batch({"bits": [0b101, 0, 0]})).to_device("cuda:0")["bits"]
for of_mask in ([bits.__cuda_array_interface__["data"]], [bits.__cuda_array_interface__["data"], None]):
    entries = {**array.__cuda_array_interface__, "mask": Mask(of_mask)}
    taken = ext.echo_array(Masked(entries))
    entries.clear()
    assert len(of_mask) in Mask.alive and Interface.alive > 0
    assert taken.to_host().to_pyarrow().to_pylist() == [1, None, 3]
    taken.close()
    del taken

# Memory that the CPU can access as well.
pinned = host.to_device("cuda_host:0")
assert pinned.device == "cuda_host:0" and pinned.to_pyarrow() == pa.table(pinned).to_batches()[0] == BATCH
assert pinned["a"].to_pyarrow() == BATCH["a"]
assert pinned.to_host().to_pyarrow() == BATCH
assert polars.DataFrame(host.to_device("cuda_managed:0")).to_dicts() == BATCH.to_pylist()
refused(ValueError, "tpu", lambda: host.to_device("tpu:0"))

del host, gpu, array, reader, use, value, tensor, pinned, bits
deadline = time.monotonic() + 60
while True:
    gc.collect()
    left = {k: v for k, v in ext._library.ask(".stats").items() if v}
    if not left or time.monotonic() > deadline:
        break
    time.sleep(0.002)
assert (left, Owner.alive, Mask.alive, Interface.alive, ext._library.module.sources()) == ({}, 0, [], 0, 0), (left, Owner.alive, Mask.alive)
assert pa.total_allocated_bytes() > 0
print("done")
"""


def test_memory_of_a_device(tmp_path):
    driver = os.environ.get("DEVICE_DRIVER")
    if not driver:
        pytest.skip("DEVICE_DRIVER names no simulated driver: run.sh builds it")
    assert ended(PROGRAM, tmp_path, "-X", "faulthandler", CDEVICE_CUDA_DRIVER=driver) == (0, "done\n", "")
