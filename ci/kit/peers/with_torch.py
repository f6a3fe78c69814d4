"""PyTorch. It neither names a stream in the CUDA Array Interface nor waits for one, and refuses read-only memory."""

import contextlib

import child
import simulator

import numpy as np
import torch

import peer


class Peer(peer.Peer):
    name = "torch"
    names_stream = follows_stream = takes_read_only = tensor_keeps_array = False

    def __init__(self):
        super().__init__()
        if simulator.is_simulator:
            raise child.Skip("PyTorch does not run on the simulator")
        if not torch.cuda.is_available():
            raise child.Skip(f"PyTorch {torch.__version__} has no CUDA here")
        torch.cuda.init()
        self.version = f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}"
        self.default = torch.cuda.default_stream()

    def new_stream(self):
        return torch.cuda.Stream()

    def handle(self, stream):
        return stream.cuda_stream

    def on(self, stream):
        return contextlib.nullcontext() if stream is None else torch.cuda.stream(stream)

    def array(self, values):
        array = torch.from_numpy(np.ascontiguousarray(values).copy()).to("cuda")
        torch.cuda.current_stream().synchronize()
        return array

    def pending(self, count, first, stream, held=None):
        with torch.cuda.stream(stream):  # whose memory it is, also if it is dropped while the kernel runs
            array = self.array(np.full(count, -1))
            source = self.array(np.arange(first, first + count))
            if held is not None:
                held.begin(stream.cuda_stream)
            torch.add(source, 0, out=array)
        return array

    def read(self, array, stream, held=None):
        with torch.cuda.stream(stream):
            out = torch.empty_like(array)
            if held is not None:
                held.begin(stream.cuda_stream)
            if array.dtype == torch.int64:
                torch.add(array, 0, out=out)  # a kernel
            else:
                out.copy_(array)

        def finish():
            with torch.cuda.stream(stream):  # the default one may wait for held work
                return out.cpu().numpy()

        return peer.Reading(finish)

    def used(self):
        return torch.cuda.memory_allocated()

    def address(self, array):
        return array.data_ptr()

    def from_dlpack(self, source):
        return torch.from_dlpack(source)

    def from_cai(self, source):
        return torch.as_tensor(source, device="cuda")
