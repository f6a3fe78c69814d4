"""The memory of a GPU: regions of other processes, which are read and written on any thread."""

import contextlib
import ctypes

import driver
import simulator

LAZY_PEER_ACCESS = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, the only flag there is


class Handle(ctypes.Structure):
    """CUipcMemHandle, which the driver takes by value."""

    _fields_ = [("reserved", ctypes.c_char * 64)]


class Gpu:
    def __init__(self, ordinal):
        self._ordinal = ordinal
        self._context = driver.ask(driver.handle, "cuDevicePrimaryCtxRetain", ordinal)

    def release(self):
        driver.call("cuDevicePrimaryCtxRelease_v2", self._ordinal)

    @contextlib.contextmanager
    def current(self):
        driver.call("cuCtxPushCurrent_v2", driver.handle(self._context))
        try:
            yield
        finally:
            driver.ask(driver.handle, "cuCtxPopCurrent_v2")

    def open(self, raw_handle):
        """Opens a handle: the address and the bytes of the allocation."""
        handle = Handle()
        ctypes.memmove(ctypes.byref(handle), raw_handle, 64)
        with self.current():
            address = driver.address()
            opened = simulator.library.cuIpcOpenMemHandle_v2
            opened.argtypes = [ctypes.c_void_p, Handle, ctypes.c_uint]
            result = opened(ctypes.byref(address), handle, LAZY_PEER_ACCESS)
            if result:
                raise driver.Error("cuIpcOpenMemHandle", result)
            base, size = driver.address(), driver.size()
            driver.call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), address)
            assert base.value == address.value
            return address.value, size.value

    def close(self, address):
        with self.current():
            driver.call("cuIpcCloseMemHandle", driver.address(address))

    def read(self, address, memory):
        with self.current():
            driver.call("cuMemcpyDtoH_v2", pointer(memory), driver.address(address), driver.size(len(memory)))

    def write(self, address, memory):
        with self.current():
            driver.call("cuMemcpyHtoD_v2", driver.address(address), pointer(memory), driver.size(len(memory)))


def pointer(memory):
    return ctypes.byref(ctypes.c_char.from_buffer(memory))
