"""Fields of Arrow's JSON test data format, and columns of random values for them.

A field is made of a name and of what its type needs, and gives its schema(), and a column(rng,
count) that is drawn from a random.Random. The format is described in Arrow's documentation,
"Integration Testing". It has no offsets of arrays: a column is a whole array.
"""

NULLS = 0.3  # of the values of a nullable column


class Field:
    """What all fields have. A subclass has type(), fill() and, if it has any, children."""

    children = ()

    def __init__(self, name, nullable=True, metadata=None):
        self.name, self.nullable, self.metadata = name, nullable, metadata or {}

    def schema(self):
        schema = {
            "name": self.name,
            "nullable": self.nullable,
            "type": self.type(),
            "children": [child.schema() for child in self.children],
        }
        if self.metadata:
            schema["metadata"] = pairs(self.metadata)
        return schema

    def column(self, rng, count):
        column = {"name": self.name, "count": count}
        column.update(self.fill(rng, count, self.validity(rng, count)))
        return column

    def validity(self, rng, count):
        return [int(not self.nullable or rng.random() >= NULLS) for _ in range(count)]

    def dictionaries(self):
        """The dictionaries of the field and its children, a dictionary after those that its values use."""
        for child in self.children:
            yield from child.dictionaries()


def pairs(metadata):
    return [{"key": key, "value": value} for key, value in metadata.items()]


def offsets(sizes, wide):
    """The buffer OFFSET of elements of these sizes."""
    ends = [0]
    for size in sizes:
        ends.append(ends[-1] + size)
    return integers(ends, wide)


def integers(values, wide):
    """64-bit integers are strings, because JSON parsers read numbers as float64."""
    return [str(value) for value in values] if wide else list(values)


class Null(Field):
    def type(self):
        return {"name": "null"}

    def fill(self, rng, count, validity):
        return {}


class Values(Field):
    """A type with one value per element in the buffer DATA: draw(rng) makes one."""

    def __init__(self, name, type, draw, **rest):
        super().__init__(name, **rest)
        self._type, self._draw = type, draw

    def type(self):
        return self._type

    def fill(self, rng, count, validity):
        return {"VALIDITY": validity, "DATA": [self._draw(rng) for _ in range(count)]}


class Text(Field):
    """utf8 or binary, with offsets of 64 bits if wide; show makes JSON of bytes."""

    def __init__(self, name, draw, show, type, wide=False, **rest):
        super().__init__(name, **rest)
        self._draw, self._show, self._type, self._wide = draw, show, type, wide

    def type(self):
        return {"name": ("large" if self._wide else "") + self._type}

    def fill(self, rng, count, validity):
        values = [self._draw(rng) if valid else b"" for valid in validity]
        return {
            "VALIDITY": validity,
            "OFFSET": offsets(map(len, values), self._wide),
            "DATA": [self._show(value) for value in values],
        }


class View(Field):
    """utf8view or binaryview: values of up to 12 bytes are in the view, others in one of several buffers."""

    def __init__(self, name, draw, show, type, **rest):
        super().__init__(name, **rest)
        self._draw, self._show, self._type = draw, show, type

    def type(self):
        return {"name": self._type + "view"}

    def fill(self, rng, count, validity):
        buffers = []
        views = [self._view(self._draw(rng) if valid else b"", buffers) for valid in validity]
        return {"VALIDITY": validity, "VIEWS": views, "VARIADIC_DATA_BUFFERS": [hexadecimal(bytes(b)) for b in buffers]}

    def _view(self, value, buffers):
        if len(value) <= 12:
            return {"SIZE": len(value), "INLINED": self._show(value)}
        if not buffers or len(buffers[-1]) > 60:
            buffers.append(bytearray())
        view = {
            "SIZE": len(value),
            "PREFIX_HEX": hexadecimal(value[:4]),
            "BUFFER_INDEX": len(buffers) - 1,
            "OFFSET": len(buffers[-1]),
        }
        buffers[-1] += value
        return view


def hexadecimal(value):
    return value.hex().upper()


class List(Field):
    """Up to four items. With spread, the child has values that no element uses: before and after them, and in nulls."""

    def __init__(self, name, item, wide=False, spread=False, **rest):
        super().__init__(name, **rest)
        self.children, self._wide, self._spread = (item,), wide, spread

    def type(self):
        return {"name": "largelist" if self._wide else "list"}

    def fill(self, rng, count, validity):
        sizes = [rng.randint(0, 4) if valid or self._spread else 0 for valid in validity]
        first = 3 if self._spread else 0
        ends = [first]
        for size in sizes:
            ends.append(ends[-1] + size)
        values = self.children[0].column(rng, ends[-1] + (2 if self._spread else 0))
        return {"VALIDITY": validity, "OFFSET": integers(ends, self._wide), "children": [values]}


class ListView(Field):
    """Lists whose items are anywhere in the child, in any order, and may be shared."""

    def __init__(self, name, item, wide=False, **rest):
        super().__init__(name, **rest)
        self.children, self._wide = (item,), wide

    def type(self):
        return {"name": "largelistview" if self._wide else "listview"}

    def fill(self, rng, count, validity):
        length = 2 * count
        sizes = [rng.randint(0, min(4, length)) if valid else 0 for valid in validity]
        starts = [rng.randint(0, length - size) for size in sizes]
        return {
            "VALIDITY": validity,
            "OFFSET": integers(starts, self._wide),
            "SIZE": integers(sizes, self._wide),
            "children": [self.children[0].column(rng, length)],
        }


class FixedSizeList(Field):
    def __init__(self, name, item, size, **rest):
        super().__init__(name, **rest)
        self.children, self._size = (item,), size

    def type(self):
        return {"name": "fixedsizelist", "listSize": self._size}

    def fill(self, rng, count, validity):
        return {"VALIDITY": validity, "children": [self.children[0].column(rng, count * self._size)]}


class Struct(Field):
    def __init__(self, name, fields, **rest):
        super().__init__(name, **rest)
        self.children = tuple(fields)

    def type(self):
        return {"name": "struct"}

    def fill(self, rng, count, validity):
        return {"VALIDITY": validity, "children": [child.column(rng, count) for child in self.children]}


class Map(Field):
    def __init__(self, name, key, value, sorted=False, entries="entries", **rest):
        super().__init__(name, **rest)
        self.children, self._sorted = (Struct(entries, [key, value], nullable=False),), sorted

    def type(self):
        return {"name": "map", "keysSorted": self._sorted}

    def fill(self, rng, count, validity):
        sizes = [rng.randint(0, 4) if valid else 0 for valid in validity]
        return {
            "VALIDITY": validity,
            "OFFSET": offsets(sizes, False),
            "children": [self.children[0].column(rng, sum(sizes))],
        }


class Union(Field):
    """A union has no validity of its own, so whether it is nullable is only in the schema."""

    def __init__(self, name, fields, codes, dense, **rest):
        super().__init__(name, **rest)
        self.children, self._codes, self._dense = tuple(fields), codes, dense

    def type(self):
        return {"name": "union", "mode": "DENSE" if self._dense else "SPARSE", "typeIds": self._codes}

    def fill(self, rng, count, validity):
        chosen = [rng.randrange(len(self._codes)) for _ in range(count)]
        column = {"TYPE_ID": [self._codes[child] for child in chosen]}
        counts = [count] * len(self._codes)
        if self._dense:
            counts = [0] * len(self._codes)
            column["OFFSET"] = []
            for child in chosen:
                column["OFFSET"].append(counts[child])
                counts[child] += 1
        column["children"] = [child.column(rng, n) for child, n in zip(self.children, counts)]
        return column


class RunEndEncoded(Field):
    def __init__(self, name, bits, values, **rest):
        super().__init__(name, **rest)
        self._bits = bits
        self.children = (Values("run_ends", integer(bits), None, nullable=False), values)

    def type(self):
        return {"name": "runendencoded"}

    def fill(self, rng, count, validity):
        ends = []
        while (ends[-1] if ends else 0) < count:
            ends.append(min(count, (ends[-1] if ends else 0) + rng.randint(1, 3)))
        run_ends = {
            "name": "run_ends",
            "count": len(ends),
            "VALIDITY": [1] * len(ends),
            "DATA": integers(ends, self._bits == 64),
        }
        return {"children": [run_ends, self.children[1].column(rng, len(ends))]}


def integer(bits, signed=True):
    return {"name": "int", "isSigned": signed, "bitWidth": bits}


class Dictionary:
    """A dictionary of count values of a field, for DictionaryEncoded. It has the same values in all batches."""

    def __init__(self, id, field, count):
        self.id, self.field, self.count = id, field, count

    def batch(self, rng):
        return {"id": self.id, "data": {"count": self.count, "columns": [self.field.column(rng, self.count)]}}


class DictionaryEncoded(Field):
    def __init__(self, name, dictionary, bits, signed=True, **rest):
        super().__init__(name, **rest)
        self._dictionary, self._bits, self._signed = dictionary, bits, signed
        self.children = dictionary.field.children

    def type(self):
        return self._dictionary.field.type()

    def schema(self):
        index = {"id": self._dictionary.id, "indexType": integer(self._bits, self._signed), "isOrdered": False}
        return {**super().schema(), "dictionary": index}

    def fill(self, rng, count, validity):
        indices = [rng.randrange(self._dictionary.count) for _ in range(count)]
        return {"VALIDITY": validity, "DATA": integers(indices, self._bits == 64)}

    def dictionaries(self):
        yield from self._dictionary.field.dictionaries()
        yield self._dictionary
