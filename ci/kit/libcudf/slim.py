"""slim.py LIBRARY ARCH...: clears the code for other GPUs than those of the architectures (90 is compute capability 9.0) in a
library of CUDA, so that it compresses to less. Their entries stay, so that the driver finds what it looks for as before.

A fat binary is a header of 16 bytes (magic, version, size of the header, size of the entries) and entries: a header (kind,
version, its own size, size of the code; the architecture at byte 28) and code.
"""

import os
import struct
import sys

MAGIC = 0xBA55ED50
ENTRY_ARCH = 28


def section(data, wanted):
    """The place and the size of a section of an ELF file of 64 bits."""
    headers = struct.unpack_from("<Q", data, 0x28)[0]
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    all_headers = [struct.unpack_from("<IIQQQQ", data, headers + i * size) for i in range(count)]
    texts = all_headers[names][4]
    for name, _, _, _, offset, length in all_headers:
        start = texts + name
        if data[start : data.index(b"\0", start)] == wanted:
            return offset, length
    raise SystemExit(f"{sys.argv[1]}: no section {wanted.decode()}")


def entries(data, offset, length):
    """The architecture, the place and the size of all code."""
    at, end = offset, offset + length
    while at < end:
        magic, _, header, size = struct.unpack_from("<IHHQ", data, at)
        if magic != MAGIC:  # padding
            at += 8
            continue
        entry, at = at + header, at + header + size
        while entry < at:
            _, _, header, size = struct.unpack_from("<HHIQ", data, entry)
            yield struct.unpack_from("<I", data, entry + ENTRY_ARCH)[0], entry + header, size
            entry += header + size


def main(path, *archs):
    with open(path, "rb") as f:
        data = bytearray(f.read())
    kept = cleared = 0
    for arch, offset, size in entries(data, *section(data, b".nv_fatbin")):
        if str(arch) in archs:
            kept += size
        else:
            data[offset : offset + size] = bytes(size)
            cleared += size
    if not kept:
        raise SystemExit(f"{path}: no code for {' '.join(archs)}")
    os.unlink(path)  # it may be a link to the file of another folder
    with open(path, "wb") as f:
        f.write(data)
    print(f"{os.path.basename(path)} has code for {' '.join(archs)} only: {kept >> 20} MB, without {cleared >> 20} MB")


main(*sys.argv[1:])
