"""Host memory that other processes can open: files without a name (memfd) of a fixed size."""

from __future__ import annotations

import bisect
import ctypes
import errno
import fcntl
import mmap
import os
import weakref

from .worker import worker

_SHRINK, _GROW, _FUTURE_WRITE, _SEAL = 0x2, 0x4, 0x10, 0x1  # F_SEAL_...
_ADD_SEALS, _GET_SEALS = 1033, 1034

_libc = ctypes.CDLL(None, use_errno=True)
_mmap = _libc.mmap
_mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
_mmap.restype = ctypes.c_void_p
_munmap = _libc.munmap
_munmap.argtypes, _munmap.restype = [ctypes.c_void_p, ctypes.c_size_t], ctypes.c_int
_FAILED = ctypes.c_void_p(-1).value

_PAGE = mmap.PAGESIZE


def map_file(file, size, writable=False):
    """The address of a new mapping of a whole file."""
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    address = _mmap(None, size, protection, mmap.MAP_SHARED, file, 0)
    if address == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, f"mmap: {os.strerror(number)}")
    return address


def map_code(code):
    """The address of machine code, which is mapped for ever. No memory is both writable and executable."""
    file = os.memfd_create("arrowdevice-code", os.MFD_CLOEXEC)
    try:
        os.write(file, code)
        address = _mmap(None, len(code), mmap.PROT_READ | mmap.PROT_EXEC, mmap.MAP_PRIVATE, file, 0)
        number = ctypes.get_errno()
    finally:
        os.close(file)
    if address == _FAILED:
        raise OSError(number, f"mmap of code: {os.strerror(number)}")
    return address


def unmap(address, size):
    _munmap(address, size)


def map_received(file, size):
    """Maps a file that an owner has sent, read-only. It first checks that the file has the size and cannot shrink: a read beyond its
    end would kill this process."""
    seals = fcntl.fcntl(file, _GET_SEALS)
    if seals & (_SHRINK | _GROW) != _SHRINK | _GROW:
        raise OSError(errno.EPERM, f"the file has the seals {seals:#x}, want {_SHRINK | _GROW:#x}: its size can change")
    has = os.fstat(file).st_size
    if has < size:
        raise OSError(errno.EINVAL, f"the file has {has} bytes, want {size}")
    return map_file(file, size)


class Block:
    """A file, which is mapped here. It ends with its last reference. Those that can be found are in _blocks."""

    __slots__ = ("size", "file", "address", "__weakref__")

    def __init__(self, size, can_be_found=False):
        self.size = -(-size // _PAGE) * _PAGE
        worker.run(self._open, can_be_found)
        # Here, as it takes time for much memory. Without it, a write would kill the process where memory is short.
        os.posix_fallocate(self.file, 0, self.size)
        try:
            fcntl.fcntl(self.file, _ADD_SEALS, _SHRINK | _GROW | _FUTURE_WRITE | _SEAL)
        except OSError as error:  # Linux before 5.1
            if error.errno != errno.EINVAL:
                raise
            fcntl.fcntl(self.file, _ADD_SEALS, _SHRINK | _GROW | _SEAL)

    def _open(self, can_be_found):
        at_end = worker.at_end(self)
        self.file = os.memfd_create("arrowdevice", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        at_end.append((os.close, self.file))
        os.ftruncate(self.file, self.size)
        self.address = map_file(self.file, self.size, writable=True)
        at_end.append((unmap, self.address, self.size))
        if can_be_found:
            _blocks[self.address] = weakref.ref(self)
            at_end.append((_blocks.pop, self.address))


_blocks: dict[int, weakref.ref[Block]] = {}  # weak references to the blocks of allocate, by their address


class Allocated:
    """The blocks of allocate that are in use at one time, which it retains."""

    def __init__(self):
        alive = [block for reference in list(_blocks.values()) if (block := reference()) is not None]
        self._blocks = sorted(alive, key=lambda block: block.address)
        self._starts = [block.address for block in self._blocks]

    def find(self, address):
        """The block that an address lies in, or None."""
        i = bisect.bisect(self._starts, address) - 1
        return self._blocks[i] if i >= 0 and address < self._starts[i] + self._blocks[i].size else None


def allocate(size: int) -> memoryview:
    """Writable, zeroed bytes that share() passes on without a copy, aligned to a page: for numpy.frombuffer(m, dtype),
    pyarrow.py_buffer(m), or a file's readinto(m). They take whole pages and a descriptor, and are freed, by a thread, after the
    last view of them. Arrow data is immutable: do not write once they are shared."""
    if size < 0:
        raise ValueError(f"share: allocate: size = {size}, want 0 or more")
    if size == 0:
        return memoryview(bytearray())
    block = Block(size, can_be_found=True)
    array = (ctypes.c_char * size).from_address(block.address)
    array._block = block
    return memoryview(array).cast("B")
