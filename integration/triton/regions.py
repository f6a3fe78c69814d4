"""Memory of the simulated GPU with a copy in system shared memory, by the names of the regions."""

import contextlib
import mmap
import os
import threading


class Region:
    def __init__(self, gpu, address, memory):
        self.gpu, self.address, self.memory = gpu, address, memory


class Regions:
    def __init__(self, gpus):
        self._gpus = gpus
        self._lock = threading.Lock()
        self._opened = 0
        self._regions = {}

    @contextlib.contextmanager
    def opening(self, request):
        """Opens the handle of a request, and yields the key of system shared memory, for as long as a server needs to open
        that. If the server refuses, the handle is closed."""
        with self._lock:
            self._opened += 1
            key = f"/arrowdevice-proxy-{os.getpid()}-{self._opened}"
        gpu = self._gpus[request.device_id]
        address, size = gpu.open(request.raw_handle)
        assert request.byte_size <= size
        try:
            with open("/dev/shm" + key, "x+b") as file:
                file.truncate(request.byte_size)
                memory = mmap.mmap(file.fileno(), request.byte_size)
            yield key
        except BaseException:
            gpu.close(address)
            raise
        finally:
            os.unlink("/dev/shm" + key)
        with self._lock:
            self._regions[request.name] = Region(gpu, address, memory)

    def __contains__(self, name):
        with self._lock:
            return name in self._regions

    def close(self, name):
        with self._lock:
            region = self._regions.pop(name, None)
        if region:
            region.gpu.close(region.address)

    def download(self, parameters):
        """Copies a tensor from the GPU."""
        region, offset, byte_size = self._find(parameters)
        if region:
            region.gpu.read(region.address + offset, memoryview(region.memory)[offset : offset + byte_size])

    def upload(self, parameters):
        """Copies a tensor to the GPU."""
        region, offset, byte_size = self._find(parameters)
        if region:
            region.gpu.write(region.address + offset, memoryview(region.memory)[offset : offset + byte_size])

    def _find(self, parameters):
        """The region is None if the server has to answer that there is none, or not so much of it."""
        values = {name: getattr(value, value.WhichOneof("parameter_choice")) for name, value in parameters.items()}
        offset, byte_size = values.get("shared_memory_offset", 0), values.get("shared_memory_byte_size", 0)
        with self._lock:
            region = self._regions.get(values.get("shared_memory_region"))
        if region and offset + byte_size > len(region.memory):
            region = None
        return region, offset, byte_size
