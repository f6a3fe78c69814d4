"""Schemas as trees of fields, whose types are the format strings of the C data interface."""

from __future__ import annotations

import re

MAX_DEPTH = 64  # of nested arrays

NULLABLE, ORDERED, KEYS_SORTED = 2, 1, 4  # ArrowSchema.flags


class Field:
    """A field; a whole schema is one of the format "+s". metadata is a list of pairs of bytes. The values of a dictionary are a
    field as well."""

    __slots__ = ("format", "name", "flags", "metadata", "children", "dictionary")

    def __init__(self, format, name=b"", flags=NULLABLE, metadata=(), children=(), dictionary=None):
        self.format, self.name, self.flags = format, name, flags
        self.metadata, self.children, self.dictionary = list(metadata), list(children), dictionary

    def below(self):
        """The fields of the arrays below an array of this one."""
        return [*self.children, self.dictionary] if self.dictionary else self.children


# The bytes of a value of fixed size.
_WIDTHS = {
    "c": 1, "C": 1, "s": 2, "S": 2, "i": 4, "I": 4, "l": 8, "L": 8, "e": 2, "f": 4, "g": 8,
    "tdD": 4, "tdm": 8, "tts": 4, "ttm": 4, "ttu": 8, "ttn": 8, "tiM": 4, "tiD": 8, "tin": 16,
}  # fmt: skip


class Layout:
    """The buffers of the arrays of a format. has_validity says whether the first one is a validity bitmap. width is the bits of an
    element in the next buffer, and extra that of one more. data is the width of the offsets to the bytes of the last buffer, if
    there is one."""

    __slots__ = ("buffers", "has_validity", "width", "extra", "data", "is_view", "children", "times")

    def __init__(self, buffers, has_validity=True, width=0, extra=0, data=0, is_view=False, children=0, times=0):
        self.buffers, self.has_validity, self.width, self.extra = buffers, has_validity, width, extra
        self.data, self.is_view, self.children = data, is_view, children
        self.times = times  # elements of each child for an element, at least

    def bits(self, i):
        """The bits of an element in buffer i, or 0 if that has no place of its own for each."""
        i -= self.has_validity
        if i < 1:
            return self.width if i == 0 else 1
        if self.data or self.is_view:
            return 0
        return self.width if self.has_validity else 32  # sizes of a list view, offsets of a dense union

    def least_size(self, i, end):
        """The bytes that buffer i has at least for so many elements."""
        return (self.bits(i) * (end + (self.extra if i == 1 else 0)) + 7) // 8


_FIXED = {
    "n": Layout(0, has_validity=False),
    "b": Layout(2, width=1),
    "u": Layout(3, width=32, extra=1, data=4),
    "z": Layout(3, width=32, extra=1, data=4),
    "U": Layout(3, width=64, extra=1, data=8),
    "Z": Layout(3, width=64, extra=1, data=8),
    "vu": Layout(2, width=128, is_view=True),
    "vz": Layout(2, width=128, is_view=True),
    "+l": Layout(2, width=32, extra=1, children=1),
    "+m": Layout(2, width=32, extra=1, children=1),
    "+L": Layout(2, width=64, extra=1, children=1),
    "+vl": Layout(3, width=32, children=1),
    "+vL": Layout(3, width=64, children=1),
    "+r": Layout(0, has_validity=False, children=2),
    **{name: Layout(2, width=8 * width) for name, width in _WIDTHS.items()},
}


def layout_of(field):
    """The layout of the arrays of a field. ValueError if the format is not known."""
    name = field.format
    if name in _FIXED:
        return _FIXED[name]
    head, _, rest = name.partition(":")
    count = len(field.children)
    if name == "+s":
        return Layout(1, children=count, times=1)
    if head == "+us":
        return Layout(1, has_validity=False, width=8, children=count, times=1)
    if head == "+ud":
        return Layout(2, has_validity=False, width=8, children=count)
    if head in ("+w", "w") and rest.isdigit():
        return Layout(1, children=1, times=int(rest)) if head == "+w" else Layout(2, width=8 * int(rest))
    if head == "d":
        bits = rest.split(",")[2:] or ["128"]
        return Layout(2, width=int(bits[0]))
    if re.match("ts[smun]:", name) or re.fullmatch("tD[smun]", name):
        return Layout(2, width=64)
    raise ValueError(f"the format {name!r}")
