"""The version of macOS that a library was built for, read from its Mach-O file."""

import struct
from pathlib import Path

from .errors import BuildError

_MAGIC = 0xFEEDFACF  # 64 bits, in the order of the machine
_VERSION_MIN_MACOSX, _BUILD_VERSION = 0x24, 0x32


def minimum(path):
    """(major, minor) of the oldest macOS that loads it."""
    content = Path(path).read_bytes()
    try:
        magic, _, _, _, commands, _, _, _ = struct.unpack_from("<8I", content)
        if magic != _MAGIC:
            raise ValueError(f"it begins with {content[:4]!r}")
        at = 32
        for _ in range(commands):
            command, size = struct.unpack_from("<II", content, at)
            if command == _BUILD_VERSION:  # platform, minos, sdk
                return _version(struct.unpack_from("<I", content, at + 12)[0])
            if command == _VERSION_MIN_MACOSX:  # version, sdk
                return _version(struct.unpack_from("<I", content, at + 8)[0])
            at += size
    except (struct.error, ValueError) as error:
        raise BuildError(f"{path}: no Mach-O file of a 64-bit system: {error}") from error
    raise BuildError(f"{path}: does not name a version of macOS")


def _version(word):
    return word >> 16, word >> 8 & 0xFF
