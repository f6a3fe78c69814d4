"""What a shared library of Linux needs and shows, read from its ELF file."""

import dataclasses
import struct
from pathlib import Path

from .errors import BuildError

# Types of sections, tags of .dynamic, and symbols.
_DYNAMIC, _DYNSYM, _VERNEED = 6, 11, 0x6FFFFFFE
_DT_NULL, _DT_NEEDED = 0, 1
_LOCAL, _UNDEFINED = 0, 0


@dataclasses.dataclass(frozen=True)
class Library:
    needed: tuple  # names of the libraries that it is linked to, in order
    versions: frozenset  # versions of symbols that it needs, as "GLIBC_2.34"
    visible: frozenset  # names of the symbols that it shows to others


@dataclasses.dataclass(frozen=True)
class _Section:
    type: int
    link: int  # the section with its names
    content: bytes


def read(path):
    content = Path(path).read_bytes()
    try:
        return _library(content)
    except (struct.error, IndexError, ValueError) as error:
        raise BuildError(f"{path}: no ELF file of a 64-bit system: {error}") from error


def _library(content):
    if content[:5] != b"\x7fELF\x02":
        raise ValueError(f"it begins with {content[:5]!r}")
    order = "<" if content[5] == 1 else ">"
    sections = _sections(content, order)
    if not sections:
        raise ValueError("it has no sections")
    needed, versions, visible = [], set(), set()
    for section in sections:
        if section.type == _DYNAMIC:
            needed += _needed(section.content, sections[section.link].content, order)
        elif section.type == _VERNEED:
            versions.update(_versions(section.content, sections[section.link].content, order))
        elif section.type == _DYNSYM:
            visible.update(_visible(section.content, sections[section.link].content, order))
    return Library(tuple(needed), frozenset(versions), frozenset(visible))


def _sections(content, order):
    (start,) = struct.unpack_from(order + "Q", content, 40)  # e_shoff
    size, count = struct.unpack_from(order + "HH", content, 58)  # e_shentsize, e_shnum
    sections = []
    for i in range(count):
        _, kind, _, _, offset, length, link, _, _, _ = struct.unpack_from(order + "IIQQQQIIQQ", content, start + i * size)
        sections.append(_Section(kind, link, content[offset : offset + length]))
    return sections


def _name(names, at):
    return names[at : names.index(b"\0", at)].decode()


def _needed(dynamic, names, order):
    for tag, value in struct.iter_unpack(order + "qQ", dynamic):
        if tag == _DT_NULL:
            return
        if tag == _DT_NEEDED:
            yield _name(names, value)


def _versions(verneed, names, order):
    """The names of a chain of Verneed, one for each library, each with a chain of Vernaux."""
    library = 0
    while True:
        _, count, _, first, following = struct.unpack_from(order + "HHIII", verneed, library)
        version = library + first
        for _ in range(count):
            _, _, _, name, after = struct.unpack_from(order + "IHHII", verneed, version)
            yield _name(names, name)
            version += after
        if not following:
            return
        library += following


def _visible(symbols, names, order):
    for name, info, _, section, _, _ in struct.iter_unpack(order + "IBBHQQ", symbols):
        if section != _UNDEFINED and info >> 4 != _LOCAL:
            yield _name(names, name)
