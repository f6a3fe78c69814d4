"""The release callback of the structs that this package exports, in machine code.

No function of Python can be one, not even by ctypes: a consumer calls it while an exception is being raised (`[pyarrow.table(batch),
1 / 0]` drops the table then), near the limit of recursion, from threads and signal handlers, and after the end of Python. ctypes loses
the exception then, and a consumer that finds the struct unreleased ends the process. The code sets `release` to NULL, marks the cell
that `private_data` points to, and adds 1 to an eventfd. It needs neither Python's lock nor its memory, but for the cell.
"""

from __future__ import annotations

import functools
import os
import struct
import sys

from . import memory
from .errors import NotSupported

_ONE = struct.pack("=q", 1)


def _x86_64(release, private):
    code = bytes.fromhex(
        "f30f1efa"  # endbr64
        f"488b47{private:02x}"  # mov rax, [rdi + private]
        f"48c747{release:02x}00000000"  # mov qword [rdi + release], 0
        "8b7808"  # mov edi, [rax + 8]
        "48c70001000000"  # mov qword [rax], 1; from here on, the cell may be freed
        "488d350d000000"  # lea rsi, [rip + 13], which is behind the code
        "ba08000000"  # mov edx, 8
        "b801000000"  # mov eax, 1: write
        "0f05"  # syscall
        "c3"  # ret
    )
    return code + _ONE


def _aarch64(release, private):
    code = (
        0xF9400009 | private // 8 << 10,  # ldr x9, [x0, private]
        0xF900001F | release // 8 << 10,  # str xzr, [x0, release]
        0xB9400920,  # ldr w0, [x9, 8]
        0xD280002A,  # mov x10, 1
        0xC89FFD2A,  # stlr x10, [x9]; from here on, the cell may be freed
        0x100000A1,  # adr x1, . + 20, which is behind the code
        0xD2800102,  # mov x2, 8
        0xD2800808,  # mov x8, 64: write
        0xD4000001,  # svc 0
        0xD65F03C0,  # ret
    )
    return struct.pack("=10I", *code) + _ONE


_MACHINES = {"x86_64": _x86_64, "aarch64": _aarch64}


@functools.lru_cache(maxsize=None)
def callback(kind):
    """The address of the code for a kind of structs, which stays mapped."""
    machine = os.uname().machine
    if machine not in _MACHINES or sys.maxsize < 2**63 - 1:
        raise NotSupported(f"share: on {machine}: want x86_64 or aarch64, for which there is a release callback")
    return memory.map_code(_MACHINES[machine](kind.release.offset, kind.private_data.offset))
