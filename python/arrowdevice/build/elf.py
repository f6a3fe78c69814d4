"""What a shared library of Linux needs and shows, read from its ELF file."""

import dataclasses

from elftools.common.exceptions import ELFError
from elftools.construct import ConstructError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from .errors import BuildError


@dataclasses.dataclass(frozen=True)
class Library:
    machine: str  # "EM_X86_64"
    needed: tuple  # names of the libraries that it is linked to, in order
    versions: frozenset  # versions of symbols that it needs, as "GLIBC_2.34"
    visible: frozenset  # names of the symbols that it shows to others


def read(path):
    try:
        with open(path, "rb") as file:
            return _library(ELFFile(file))
    except (ELFError, ConstructError, ValueError) as error:
        raise BuildError(f"{path}: no ELF file of a 64-bit system: {error}") from error


def _library(elf):
    symbols = elf.get_section_by_name(".dynsym")
    if elf.elfclass != 64 or symbols is None:
        raise ValueError(f"{elf.elfclass} bits, {elf.num_sections()} sections")
    sections = list(elf.iter_sections())
    dynamic = [tag for section in sections if isinstance(section, DynamicSection) for tag in section.iter_tags("DT_NEEDED")]
    versions = [names for section in sections if isinstance(section, GNUVerNeedSection) for _, names in section.iter_versions()]
    return Library(
        elf["e_machine"],
        tuple(tag.needed for tag in dynamic),
        frozenset(version.name for names in versions for version in names),
        frozenset(symbol.name for symbol in symbols.iter_symbols() if symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["bind"] != "STB_LOCAL"),
    )
