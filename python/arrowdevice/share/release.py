"""The release callback of the structs that this package exports, in machine code.

No function of Python can be one, not even by ctypes: a consumer calls it while an exception is being raised (`[pyarrow.table(batch),
1 / 0]` drops the table then), near the limit of recursion, from threads and signal handlers, and after the end of Python. ctypes loses
the exception then, and a consumer that finds the struct unreleased ends the process. The code sets `release` to NULL, puts the cell
that `private_data` points to on a list, and wakes the thread that takes the list. It needs neither Python's lock nor a descriptor.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
import sys

from . import memory
from .errors import NotSupported

_FUTEX_WAIT = 0x80  # FUTEX_WAIT_PRIVATE; the code has FUTEX_WAKE_PRIVATE

# The head of the list, and the number of releases, which the thread waits for. A cell is one word, the next of the list. A child of a
# fork has a list of its own, as it has this memory.
_state = (ctypes.c_uint64 * 2)()
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_state))  # until the end of the process
_COUNT = ctypes.addressof(_state) + 8

_libc = ctypes.CDLL(None)
_syscall = _libc.syscall
_syscall.argtypes, _syscall.restype = [ctypes.c_long, ctypes.c_void_p, ctypes.c_long, ctypes.c_uint32, ctypes.c_void_p], ctypes.c_long


class _X86_64:
    futex = 202

    @staticmethod
    def release(release, private, state):
        return bytes.fromhex(
            "f30f1efa"  # endbr64
            f"488b47{private:02x}"  # mov rax, [rdi + private]
            f"48c747{release:02x}00000000"  # mov qword [rdi + release], 0
            f"48be{state.hex()}"  # mov rsi, state
            "4889c2"  # mov rdx, rax
            "488b06"  # mov rax, [rsi]
            "488902"  # again: mov [rdx], rax
            "f0480fb116"  # lock cmpxchg [rsi], rdx; from here on, the cell may be freed
            "75f6"  # jne again
            "f0ff4608"  # lock inc dword [rsi + 8]
            "488d7e08"  # lea rdi, [rsi + 8]
            "be81000000"  # mov esi, FUTEX_WAKE_PRIVATE
            "ba01000000"  # mov edx, 1
            "b8ca000000"  # mov eax, 202
            "0f05"  # syscall
            "c3"  # ret
        )

    @staticmethod
    def take(state):
        return bytes.fromhex(f"f30f1efa48be{state.hex()}31c0488706c3")  # mov rsi, state; xor eax, eax; xchg rax, [rsi]; ret


class _AArch64:
    futex = 98

    @staticmethod
    def release(release, private, state):
        code = (
            0xF9400009 | private // 8 << 10,  # ldr x9, [x0, private]
            0xF900001F | release // 8 << 10,  # str xzr, [x0, release]
            0x5800024A,  # ldr x10, state
            0xF940014B,  # again: ldr x11, [x10]
            0xF900012B,  # str x11, [x9]
            0xC85F7D4D,  # ldxr x13, [x10]
            0xEB0B01BF,  # cmp x13, x11
            0x54FFFF81,  # b.ne again
            0xC80CFD49,  # stlxr w12, x9, [x10]; from here on, the cell may be freed
            0x35FFFF8C,  # cbnz w12, the ldxr
            0x91002140,  # add x0, x10, 8
            0x885F7C0B,  # ldxr w11, [x0]
            0x1100056B,  # add w11, w11, 1
            0x880CFC0B,  # stlxr w12, w11, [x0]
            0x35FFFFAC,  # cbnz w12, the ldxr
            0x52801021,  # mov w1, FUTEX_WAKE_PRIVATE
            0x52800022,  # mov w2, 1
            0xD2800C48,  # mov x8, 98
            0xD4000001,  # svc 0
            0xD65F03C0,  # ret
        )
        return struct.pack(f"={len(code)}I", *code) + state

    @staticmethod
    def take(state):
        # ldr x10, state; again: ldaxr x0, [x10]; stxr w12, xzr, [x10]; cbnz w12, again; ret; nop
        return struct.pack("=6I", 0x580000CA, 0xC85FFD40, 0xC80C7D5F, 0x35FFFFCC, 0xD65F03C0, 0xD503201F) + state


@functools.lru_cache(maxsize=None)
def _machine():
    name = os.uname().machine
    machine = {"x86_64": _X86_64, "aarch64": _AArch64}.get(name)
    if machine is None or sys.maxsize < 2**63 - 1:
        raise NotSupported(f"share: on {name}: want x86_64 or aarch64, for which there is a release callback")
    return machine


def _address_of_state():
    return struct.pack("=Q", ctypes.addressof(_state))


@functools.lru_cache(maxsize=None)
def callback(kind):
    """The address of the code for a kind of structs, which stays mapped."""
    return memory.map_code(_machine().release(kind.release.offset, kind.private_data.offset, _address_of_state()))


@functools.lru_cache(maxsize=None)
def _take():
    return ctypes.CFUNCTYPE(ctypes.c_void_p)(memory.map_code(_machine().take(_address_of_state())))


def cell():
    """A new cell. Its memory ends with the last reference."""
    return ctypes.c_uint64()


def prepare(*kinds):
    """Makes what the others need, or raises NotSupported or OSError."""
    _take()
    for kind in kinds:
        callback(kind)


def wait():
    """Waits for releases, and returns the addresses of their cells. A signal may end it without one."""
    count = ctypes.c_uint32.from_address(_COUNT).value
    found, at = [], _take()()
    while at:
        found.append(at)
        at = ctypes.c_uint64.from_address(at).value
    if not found:
        _syscall(_machine().futex, _COUNT, _FUTEX_WAIT, count, None)
    return found
