"""Fields of Arrow's JSON test data format, and columns of random values for them.

A field gives its schema(), and a column(rng, count) that is drawn from a random.Random. The functions below make fields: of a name, of
what their type needs, and of nullable and metadata. The format is described in Arrow's documentation, "Integration Testing". It has no
offsets of arrays: a column is a whole array.
"""

import itertools

NULLS = 0.3  # of the values of a nullable column


class Field:
    """fill(rng, validity) returns the buffers and children of a column with these valid elements."""

    def __init__(self, name, type, fill, children=(), nullable=True, metadata=None, dictionary=None):
        self.name, self.children = name, tuple(children)
        self.type, self._fill, self._nullable, self._metadata = type, fill, nullable, metadata or {}
        self._dictionary = dictionary  # and the type of the indices

    def schema(self):
        schema = {
            "name": self.name,
            "nullable": self._nullable,
            "type": self.type,
            "children": [child.schema() for child in self.children],
        }
        if self._metadata:
            schema["metadata"] = pairs(self._metadata)
        if self._dictionary:
            dictionary, index = self._dictionary
            schema["dictionary"] = {"id": dictionary.id, "indexType": index, "isOrdered": False}
        return schema

    def column(self, rng, count):
        validity = [int(not self._nullable or rng.random() >= NULLS) for _ in range(count)]
        return {"name": self.name, "count": count, **self._fill(rng, validity)}

    def dictionaries(self):
        """The dictionaries of the field and its children, a dictionary after those that its values use."""
        if self._dictionary:
            dictionary, _ = self._dictionary
            yield from dictionary.field.dictionaries()
            yield dictionary
            return
        for child in self.children:
            yield from child.dictionaries()


def pairs(metadata):
    return [{"key": key, "value": value} for key, value in metadata.items()]


def integers(values, wide):
    """64-bit integers are strings, because JSON parsers read numbers as float64."""
    return [str(value) for value in values] if wide else list(values)


def offsets(sizes, wide=False, first=0):
    """The buffer OFFSET of elements of these sizes."""
    return integers(itertools.accumulate(sizes, initial=first), wide)


def integer(bits, signed=True):
    """A type."""
    return {"name": "int", "isSigned": signed, "bitWidth": bits}


def null(name, **rest):
    return Field(name, {"name": "null"}, lambda rng, validity: {}, **rest)


def values(name, type, draw, **rest):
    """A type with one value per element in the buffer DATA: draw(rng) makes one."""
    return Field(name, type, lambda rng, validity: {"VALIDITY": validity, "DATA": [draw(rng) for _ in validity]}, **rest)


def text(name, draw, show, type, wide=False, **rest):
    """utf8 or binary, with offsets of 64 bits if wide; show makes JSON of bytes."""

    def fill(rng, validity):
        drawn = [draw(rng) if valid else b"" for valid in validity]
        return {"VALIDITY": validity, "OFFSET": offsets(map(len, drawn), wide), "DATA": [show(value) for value in drawn]}

    return Field(name, {"name": ("large" if wide else "") + type}, fill, **rest)


def view(name, draw, show, type, **rest):
    """utf8view or binaryview: values of up to 12 bytes are in the view, others in one of several buffers."""

    def fill(rng, validity):
        buffers = []
        views = [one(draw(rng) if valid else b"", buffers) for valid in validity]
        return {"VALIDITY": validity, "VIEWS": views, "VARIADIC_DATA_BUFFERS": [hexadecimal(bytes(b)) for b in buffers]}

    def one(value, buffers):
        if len(value) <= 12:
            return {"SIZE": len(value), "INLINED": show(value)}
        if not buffers or len(buffers[-1]) > 60:
            buffers.append(bytearray())
        place = {"BUFFER_INDEX": len(buffers) - 1, "OFFSET": len(buffers[-1])}
        buffers[-1] += value
        return {"SIZE": len(value), "PREFIX_HEX": hexadecimal(value[:4]), **place}

    return Field(name, {"name": type + "view"}, fill, **rest)


def hexadecimal(value):
    return value.hex().upper()


def list_(name, item, wide=False, spread=False, **rest):
    """Up to four items. With spread, the child has values that no element uses: before and after them, and in nulls."""

    def fill(rng, validity):
        sizes = [rng.randint(0, 4) if valid or spread else 0 for valid in validity]
        first, after = (3, 2) if spread else (0, 0)
        child = item.column(rng, first + sum(sizes) + after)
        return {"VALIDITY": validity, "OFFSET": offsets(sizes, wide, first), "children": [child]}

    return Field(name, {"name": "largelist" if wide else "list"}, fill, [item], **rest)


def list_view(name, item, wide=False, **rest):
    """Lists whose items are anywhere in the child, in any order, and may be shared."""

    def fill(rng, validity):
        length = 2 * len(validity)
        sizes = [rng.randint(0, min(4, length)) if valid else 0 for valid in validity]
        starts = [rng.randint(0, length - size) for size in sizes]
        buffers = {"VALIDITY": validity, "OFFSET": integers(starts, wide), "SIZE": integers(sizes, wide)}
        return {**buffers, "children": [item.column(rng, length)]}

    return Field(name, {"name": "largelistview" if wide else "listview"}, fill, [item], **rest)


def fixed_size_list(name, item, size, **rest):
    def fill(rng, validity):
        return {"VALIDITY": validity, "children": [item.column(rng, len(validity) * size)]}

    return Field(name, {"name": "fixedsizelist", "listSize": size}, fill, [item], **rest)


def struct(name, fields, **rest):
    def fill(rng, validity):
        return {"VALIDITY": validity, "children": [field.column(rng, len(validity)) for field in fields]}

    return Field(name, {"name": "struct"}, fill, fields, **rest)


def map_(name, key, value, sorted=False, entries="entries", **rest):
    pair = struct(entries, [key, value], nullable=False)

    def fill(rng, validity):
        sizes = [rng.randint(0, 4) if valid else 0 for valid in validity]
        return {"VALIDITY": validity, "OFFSET": offsets(sizes), "children": [pair.column(rng, sum(sizes))]}

    return Field(name, {"name": "map", "keysSorted": sorted}, fill, [pair], **rest)


def union(name, fields, codes, dense, **rest):
    """A union has no validity of its own, so whether it is nullable is only in the schema."""

    def fill(rng, validity):
        chosen = [rng.randrange(len(codes)) for _ in validity]
        column, counts = {"TYPE_ID": [codes[child] for child in chosen]}, [len(chosen)] * len(codes)
        if dense:
            column["OFFSET"] = [chosen[:i].count(child) for i, child in enumerate(chosen)]
            counts = [chosen.count(child) for child in range(len(codes))]
        return {**column, "children": [field.column(rng, n) for field, n in zip(fields, counts)]}

    return Field(name, {"name": "union", "mode": "DENSE" if dense else "SPARSE", "typeIds": codes}, fill, fields, **rest)


def run_end_encoded(name, bits, item, **rest):
    run_ends = values("run_ends", integer(bits), None, nullable=False)

    def fill(rng, validity):
        ends = []
        while (last := ends[-1] if ends else 0) < len(validity):
            ends.append(min(len(validity), last + rng.randint(1, 3)))
        column = {"name": "run_ends", "count": len(ends), "VALIDITY": [1] * len(ends), "DATA": integers(ends, bits == 64)}
        return {"children": [column, item.column(rng, len(ends))]}

    return Field(name, {"name": "runendencoded"}, fill, [run_ends, item], **rest)


class Dictionary:
    """A dictionary of count values of a field, for dictionary_encoded. It has the same values in all batches."""

    def __init__(self, id, field, count):
        self.id, self.field, self.count = id, field, count

    def batch(self, rng):
        return {"id": self.id, "data": {"count": self.count, "columns": [self.field.column(rng, self.count)]}}


def dictionary_encoded(name, dictionary, bits, signed=True, **rest):
    def fill(rng, validity):
        return {"VALIDITY": validity, "DATA": integers((rng.randrange(dictionary.count) for _ in validity), bits == 64)}

    field = dictionary.field
    return Field(name, field.type, fill, field.children, dictionary=(dictionary, integer(bits, signed)), **rest)
