"""The JSON files, by name: one for each file that Archery generates, and some of shapes that it has not.

The values are ours. They depend on the seed alone, ARCHERY_SEED.
"""

import dataclasses
import functools
import json
import os
import random

from columns import (
    Dictionary,
    dictionary_encoded,
    fixed_size_list,
    list_,
    list_view,
    map_,
    null,
    pairs,
    run_end_encoded,
    struct,
    union,
)
from values import (
    UNITS,
    binary,
    binary_view,
    boolean,
    date,
    decimal,
    duration,
    fixed_size_binary,
    float_,
    int_,
    interval,
    time,
    timestamp,
    utf8,
    utf8_view,
)

SEED = os.environ.get("ARCHERY_SEED", "1")


@dataclasses.dataclass(eq=False)
class File:
    name: str
    counts: list  # of rows, of each batch
    fields: list
    metadata: dict = dataclasses.field(default_factory=dict)
    spread: bool = False  # it has values that no element uses

    @functools.lru_cache
    def types(self):
        """The names of all types, apart from those in dictionaries; float16 is "half"."""
        return set(_types(self.content()["schema"]["fields"]))

    @functools.lru_cache
    def content(self, changed=None):
        """The content as JSON has it. Column number changed, if any, has other values than usual."""
        schema = {"fields": [field.schema() for field in self.fields]}
        if self.metadata:
            schema["metadata"] = pairs(self.metadata)
        content = {"schema": schema, "batches": [self._batch(i, changed) for i in range(len(self.counts))]}
        dictionaries = {d.id: d for field in self.fields for d in field.dictionaries()}
        if dictionaries:
            content["dictionaries"] = [d.batch(self._rng("dictionary", id)) for id, d in dictionaries.items()]
        return content

    def _batch(self, index, changed):
        count = self.counts[index]
        columns = [
            field.column(self._rng(index, i, "changed" if i == changed else ""), count) for i, field in enumerate(self.fields)
        ]
        return {"count": count, "columns": columns}

    def _rng(self, *of):
        return random.Random(repr((SEED, self.name, *of)))

    def write(self, folder, changed=None):
        """Writes the file and returns its path."""
        path = folder / (self.name if changed is None else f"{self.name}.changed{changed}")
        path = path.with_suffix(path.suffix + ".json")
        path.write_text(json.dumps(self.content(changed)))
        return path


def _types(fields):
    for field in fields:
        if "dictionary" in field:
            yield "dictionary"
            continue
        yield "half" if field["type"].get("precision") == "HALF" else field["type"]["name"]
        yield from _types(field["children"])


def both(make, name, *arguments):
    """A nullable field, and one that is not."""
    return [
        make(f"{name}_nullable", *arguments, nullable=True),
        make(f"{name}_nonnullable", *arguments, nullable=False),
    ]


def each(make, name, *variants):
    return [field for variant in variants for field in both(make, "_".join([name, *map(str, variant)]), *variant)]


def primitive():
    return [
        *both(boolean, "bool"),
        *each(int_, "int", *((bits, signed) for bits in (8, 16, 32, 64) for signed in (True, False))),
        *each(float_, "float", ("SINGLE",), ("DOUBLE",)),
        *both(binary, "binary"),
        *both(utf8, "utf8"),
        *each(fixed_size_binary, "fixed_size_binary", (1,), (19,), (120,)),
    ]


def large_offsets():
    return [*both(binary, "large_binary", True), *both(utf8, "large_utf8", True)]


def decimals(bits, precisions):
    return [decimal(f"f{p}_{s}", bits, p, s) for p in precisions for s in sorted({0, 2, p})]


def datetime():
    return [
        *each(date, "date", ("DAY",), ("MILLISECOND",)),
        *each(time, "time", *((unit,) for unit in UNITS.values())),
        *each(timestamp, "timestamp", *((unit,) for unit in UNITS.values())),
        timestamp("timestamp_none", "SECOND"),
        timestamp("timestamp_utc", "MILLISECOND", "UTC"),
        timestamp("timestamp_paris", "MICROSECOND", "Europe/Paris"),
        timestamp("timestamp_offset", "NANOSECOND", "+05:30"),
    ]


def nested():
    return [
        list_("list", int_("item", 32)),
        list_("list_nonnullable", int_("item", 32, nullable=False), nullable=False),
        fixed_size_list("fixed_size_list", int_("item", 32), 4),
        struct("struct", [int_("f1", 32), utf8("f2")]),
        struct("struct_nonnullable", [int_("f1", 32, nullable=False), utf8("f2")], nullable=False),
    ]


def recursive_nested():
    return [
        list_("lists", list_("inner_list", int_("item", 16))),
        list_("structs", struct("inner_struct", [int_("f1", 32), utf8("f2")])),
        struct("deep", [fixed_size_list("pairs", map_("map", utf8("key", nullable=False), list_("value", boolean("item"))), 2)]),
    ]


def nested_large_offsets():
    return [
        list_("large_list", int_("item", 32), True),
        list_("large_list_nonnullable", int_("item", 32), True, nullable=False),
        list_("large_list_nested", list_("inner_list", int_("item", 16)), True),
    ]


def maps(**names):
    key, value, entries = names.get("key", "key"), names.get("value", "value"), names.get("entries", "entries")
    inner = map_(value, int_(key, 16, nullable=False), int_(value, 32), entries=entries)
    return [
        map_("map", utf8(key, nullable=False), int_(value, 32), entries=entries),
        map_("map_sorted", int_(key, 64, nullable=False), utf8(value), True, entries=entries),
        map_("map_of_maps", utf8(key, nullable=False), inner, entries=entries),
    ]


def unions():
    of_three = [boolean("f1", nullable=False), int_("f2", 16, False), null("f3")]
    return [
        union("sparse", [int_("f1", 32), utf8("f2")], [5, 7], False),
        union("dense", [int_("f1", 16), binary("f2")], [10, 20], True),
        union("sparse_nonnullable", [float_("f1", "SINGLE", nullable=False), boolean("f2")], [5, 7], False, nullable=False),
        union("dense_nonnullable", of_three, [42, 43, 44], True, nullable=False),
        union("of_nested", [list_("f1", utf8("item")), struct("f2", [int_("f", 64)])], [0, 1], True),
    ]


def dictionaries(indices):
    texts, few = Dictionary(0, utf8("text"), 10), Dictionary(1, utf8("few"), 5)
    numbers = Dictionary(2, int_("number", 64), 50)
    return [
        dictionary_encoded(f"dict{i}", dictionary, bits, signed)
        for i, (dictionary, (bits, signed)) in enumerate(zip((texts, few, numbers, texts), indices))
    ]


def nested_dictionaries():
    texts = Dictionary(0, utf8("text"), 10)
    lists = Dictionary(1, list_("list", dictionary_encoded("text", texts, 8)), 30)
    structs = Dictionary(2, struct("struct", [dictionary_encoded("a", texts, 8), dictionary_encoded("b", texts, 8)]), 30)
    return [
        dictionary_encoded("list_dict", lists, 8),
        dictionary_encoded("struct_dict", structs, 8),
        list_("list_of_dict", dictionary_encoded("item", texts, 16)),
    ]


def extension(name, serialized):
    return {"ARROW:extension:name": name, "ARROW:extension:metadata": serialized}


def extensions():
    texts = Dictionary(0, utf8("text"), 5)
    return [
        fixed_size_binary("uuids", 16, metadata=extension("uuid-of-a-test", "uuid-serialized")),
        dictionary_encoded("dict_exts", texts, 8, metadata=extension("dict-of-a-test", "dict-serialized")),
    ]


def custom_metadata():
    return [
        utf8("sole", metadata={"key": "value", "": "an empty key", "empty": "", "unicode": "Größe→😀"}),
        list_("list", int_("item", 32, metadata={"of": "the item"}), metadata={"of": "the list"}),
        struct("struct", [int_("f1", 32, metadata={"of": "the child"})]),
        utf8("without"),
    ]


def duplicate_names():
    return [
        int_("ints", 8),
        int_("ints", 32),
        struct("struct", [int_("", 32), utf8("")]),
        struct("struct", [int_("same", 8), float_("same", "DOUBLE")]),
    ]


def runs():
    return [
        run_end_encoded("ree16", 16, int_("values", 32)),
        run_end_encoded("ree32", 32, utf8("values")),
        run_end_encoded("ree64", 64, float_("values", "SINGLE")),
    ]


def list_views():
    return [
        list_view("list_view", int_("item", 32)),
        list_view("large_list_view", utf8("item"), True),
        list_view("list_view_of_views", list_view("item", int_("item", 16)), nullable=False),
    ]


def spread_lists():
    return [
        list_("list", int_("item", 32), spread=True),
        list_("large_list", utf8("item"), True, spread=True),
        list_("list_of_lists", list_("item", boolean("item"), spread=True), spread=True),
    ]


FILES = [
    File("primitive_no_batches", [], primitive()),
    File("primitive", [17, 20], primitive()),
    File("primitive_zerolength", [0, 0, 0], primitive()),
    File("primitive_large_offsets", [17, 20], large_offsets()),
    File("null", [10, 0], [null("n0"), null("n1"), int_("int", 32)]),
    File("null_trivial", [0, 0], [null("n0")]),
    File("decimal32", [7, 10], decimals(32, range(1, 10))),
    File("decimal64", [7, 10], decimals(64, range(10, 19))),
    File("decimal128", [7, 10], decimals(128, range(3, 39, 5))),
    File("decimal256", [7, 10], decimals(256, range(37, 77, 6))),
    File("datetime", [17, 20], datetime()),
    File("duration", [17, 20], each(duration, "duration", *((unit,) for unit in UNITS.values()))),
    File("interval", [17, 20], each(interval, "interval", ("YEAR_MONTH",), ("DAY_TIME",))),
    File("interval_mdn", [17, 20], both(interval, "interval", "MONTH_DAY_NANO")),
    File("map", [7, 10, 0], maps()),
    File("map_non_canonical", [7], maps(entries="some_entries", key="some_key", value="some_value")),
    File("nested", [7, 10, 0], nested()),
    File("recursive_nested", [7, 10], recursive_nested()),
    File("nested_large_offsets", [0, 13], nested_large_offsets()),
    File("union", [0, 11], unions()),
    File("dictionary", [7, 10, 0], dictionaries([(8, True), (32, True), (16, True), (64, True)])),
    File("dictionary_unsigned", [7, 10], dictionaries([(8, False), (16, False), (32, False), (64, False)])),
    File("nested_dictionary", [10, 13], nested_dictionaries()),
    File("custom_metadata", [1], custom_metadata(), {"schema_custom_0": "eh", "schema_custom_1": ""}),
    File("duplicate_fieldnames", [1, 3], duplicate_names()),
    File("extension", [0, 13], extensions()),
    File("run_end_encoded", [0, 7, 10], runs()),
    File("binary_view", [0, 7, 256], [*both(binary_view, "binary_view"), *both(utf8_view, "utf8_view")]),
    File("list_view", [0, 7, 256], list_views()),
    # Archery's lists begin at 0 and have no values that no element uses.
    File("spread_lists", [1, 13], spread_lists(), spread=True),
    # Archery has no float16.
    File("half_float", [17, 20], both(float_, "half", "HALF")),
    File("wide_batch", [1000], [*primitive(), *nested()]),
]
