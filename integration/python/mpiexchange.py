"""A program that sends columns of Go by mpi4py, to itself, and makes columns of what it
receives. test_mpi.py runs it: an MPI library takes hold of a process, with handlers of
signals and hooks in the allocation of memory."""

import gc
import sys

import numpy as np
import pyarrow as pa
import pytest
from mpi4py import MPI

import godlpack
import golib
from golib import GoArray

TYPES = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64".split()


class Asked:
    """A tensor that counts how often it is asked for."""

    def __init__(self, go):
        self._tensor, self.count = godlpack.Tensor(go), 0

    def __dlpack_device__(self):
        return self._tensor.__dlpack_device__()

    def __dlpack__(self, **arguments):
        self.count += 1
        return self._tensor.__dlpack__(**arguments)


def there_and_back(dtype):
    source = pa.array(range(100), dtype)
    with GoArray.from_arrow(source) as whole, whole.slice(10, 90) as part:
        sent, received = Asked(part), np.zeros(80, dtype)
        assert not hasattr(sent, "__array_interface__")
        MPI.COMM_SELF.Sendrecv(sent, dest=0, sendtag=1, recvbuf=received, source=0, recvtag=1)
        assert sent.count == 1, "MPI has the memory from DLPack"
        assert received.tolist() == list(range(10, 90))
        with godlpack.from_dlpack(received) as back:
            assert back.values() == list(range(10, 90))

        # Work that is not waited for at once: the request holds the buffer.
        other = np.zeros(80, dtype)
        requests = [MPI.COMM_SELF.Irecv(other, source=0), MPI.COMM_SELF.Isend(godlpack.Tensor(part), dest=0)]
        MPI.Request.Waitall(requests)
        assert other.tolist() == list(range(10, 90))


def received_into_a_column():
    """Columns do not change, which their tensors tell."""
    with GoArray.from_arrow(pa.array([1, 2, 3])) as go, pytest.raises(BufferError, match="not writable"):
        MPI.COMM_SELF.Sendrecv(np.arange(3), dest=0, recvbuf=godlpack.Tensor(go), source=0)


def collected():
    """A sum over all processes, which are one."""
    with GoArray.from_arrow(pa.array([1.5, 2.5, -4.0])) as go:
        total = np.zeros(3)
        MPI.COMM_SELF.Allreduce(godlpack.Tensor(go), total, op=MPI.SUM)
        assert total.tolist() == [1.5, 2.5, -4.0]


def alive():
    gc.collect()
    golib.ext.free_memory()
    return {name: count for name, count in golib.stats().items() if count}


def main():
    for dtype in TYPES:
        there_and_back(dtype)
    collected()
    received_into_a_column()
    assert alive() == {}, alive()
    print(f"{len(TYPES)} types by MPI {MPI.Get_version()[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
