"""The CUDA shared memory regions of the server, as Triton keeps them: by name, open until they are unregistered and
no request uses them."""

import contextlib
import threading

import grpc


class Refused(Exception):
    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class Region:
    def __init__(self, gpu, device_id, byte_size, address):
        self.gpu, self.device_id, self.byte_size, self.address = gpu, device_id, byte_size, address
        self.requests = 0
        self.leaving = False

    def at(self, offset, byte_size):
        if offset < 0 or byte_size < 0 or offset + byte_size > self.byte_size:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"{byte_size} bytes at {offset} are not in the {self.byte_size} of the region")
        return self.address + offset


class Regions:
    def __init__(self, gpus):
        self._gpus = gpus
        self._lock = threading.Lock()
        self._regions = {}

    def register(self, name, raw_handle, device_id, byte_size):
        with self._lock:
            if name in self._regions:
                raise Refused(grpc.StatusCode.ALREADY_EXISTS, f"shared memory region '{name}' already in manager")
            if device_id not in self._gpus:
                raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"no device {device_id}")
            if len(raw_handle) != 64:
                raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"raw_handle has {len(raw_handle)} bytes")
            gpu = self._gpus[device_id]
            try:
                address, size = gpu.open(raw_handle)
            except Exception as error:
                raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"failed to open CUDA IPC handle: {error}") from error
            if byte_size > size:
                gpu.close(address)
                raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"byte_size is {byte_size}, and the allocation has {size}")
            self._regions[name] = Region(gpu, device_id, byte_size, address)

    def unregister(self, name):
        with self._lock:
            region = self._regions.get(name)
            if region:
                region.leaving = True
                self._end(name, region)

    def status(self, name):
        with self._lock:
            if name and name not in self._regions:
                raise Refused(grpc.StatusCode.NOT_FOUND, f"Unable to find cuda shared memory region: '{name}'")
            return {n: (r.device_id, r.byte_size) for n, r in self._regions.items() if not name or n == name}

    @contextlib.contextmanager
    def using(self, names):
        """Keeps regions open, and yields them by name."""
        with self._lock:
            for name in names:
                if name not in self._regions or self._regions[name].leaving:
                    raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"Unable to find shared memory region: '{name}'")
            used = {name: self._regions[name] for name in names}
            for region in used.values():
                region.requests += 1
        try:
            yield used
        finally:
            with self._lock:
                for name, region in used.items():
                    region.requests -= 1
                    self._end(name, region)

    def _end(self, name, region):
        if region.leaving and not region.requests:
            del self._regions[name]
            region.gpu.close(region.address)
