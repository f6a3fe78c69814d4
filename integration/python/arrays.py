"""Every case of internal/testing/cases again, written in Python and built by PyArrow.

Both languages state the same types and values on their own, so that a test which
compares them notices when one side of a transfer is wrong, and not only when a
round trip is.
"""

import dataclasses
import datetime
import decimal
import uuid

import pyarrow as pa


def _default_build(case, values):
    return pa.array(values, case.type)


@dataclasses.dataclass
class Case:
    type: pa.DataType
    values: list
    no_nulls: bool = False  # the type itself has no nulls, so no variant has
    build: callable = _default_build

    def array(self, variant):
        """The case in one of golib's variants; see internal/testing/cases."""
        if variant in ("sliced", "empty_part"):
            whole = self.array("nulls")
            return whole.slice(2, 0) if variant == "empty_part" else whole.slice(2, len(whole) - 3)
        values = list(self.values)
        if variant == "empty":
            values = []
        elif variant == "nulls" and not self.no_nulls:
            values[1] = None
            values.append(None)
        return self.build(self, values)

    def batch(self, variant):
        array = self.array(variant)
        return pa.record_batch([array, array], names=["a", "b"])


# PyArrow imports these types but has no Python class for their arrays.
WITHOUT_ARRAY_CLASS = ("interval_months", "interval_day_time")


def _build_sparse_union(case, values):
    """values are pairs of type code and value."""
    children = [pa.array([v if c == code else None for c, v in values], field.type) for code, field in _members(case.type)]
    return pa.UnionArray.from_sparse(_type_ids(values), children, *_names_and_codes(case.type))


def _build_dense_union(case, values):
    children, offsets, filled = [], [], {}
    for code, field in _members(case.type):
        children.append(pa.array([v for c, v in values if c == code], field.type))
    for code, _ in values:
        offsets.append(filled.get(code, 0))
        filled[code] = offsets[-1] + 1
    return pa.UnionArray.from_dense(_type_ids(values), pa.array(offsets, pa.int32()), children, *_names_and_codes(case.type))


def _members(union):
    return [(code, union.field(i)) for i, code in enumerate(union.type_codes)]


def _type_ids(values):
    return pa.array([code for code, _ in values], pa.int8())


def _names_and_codes(union):
    return [field.name for _, field in _members(union)], union.type_codes


def _build_run_end_encoded(case, values):
    ends, runs = [], []
    for i, value in enumerate(values):
        if runs and runs[-1] == value:
            ends[-1] = i + 1
        else:
            runs.append(value)
            ends.append(i + 1)
    return pa.RunEndEncodedArray.from_arrays(pa.array(ends, case.type.run_end_type), pa.array(runs, case.type.value_type))


def _build_uuid(case, values):
    storage = pa.array([v and uuid.UUID(v).bytes for v in values], case.type.storage_type)
    return pa.ExtensionArray.from_storage(case.type, storage)


def _build_bool8(case, values):
    return pa.ExtensionArray.from_storage(case.type, pa.array(values, pa.bool_()).cast(pa.int8()))


_NUMBERS = [1, 2, 3, 4, 5, 6, 7]
_TEXTS = ["a", "bcd", "", "a text that is longer than twelve bytes", "äöü", "another one of more than twelve"]
_BLOBS = [b"\x01\x02", b"", bytes(range(16)), b"\xff", b"\x01"]
_DATES = [datetime.date(1970, 1, 2), datetime.date(2026, 11, 20), datetime.date(1969, 12, 31), datetime.date(2000, 2, 29)]
_MOMENTS = [
    datetime.datetime(2026, 11, 20, 9, 10, 11),
    datetime.datetime(1970, 1, 1),
    datetime.datetime(1969, 12, 31, 23, 59, 59),
    datetime.datetime(2000, 2, 29, 12),
]
_UTC_MOMENTS = [m.replace(tzinfo=datetime.timezone.utc) for m in _MOMENTS]
_LISTS = [[1, 2, 3], [4], [], [5, None, 6], [7, 8]]
_POINT = pa.struct([("x", pa.int32()), ("name", pa.string())])
_POINTS = [
    {"x": 1, "name": "one"}, {"x": 2, "name": "two"}, {"x": None, "name": "three"}, {"x": 4, "name": None}, {"x": 5, "name": "five"},
]  # fmt: skip
_UNION_VALUES = [(5, 1), (7, "two"), (5, 3), (5, None), (7, "five"), (5, 6)]
_UNION_FIELDS = [pa.field("i", pa.int32()), pa.field("s", pa.string())]


def _time(seconds, fraction=0):
    return (datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds, microseconds=fraction)).time()


def _decimals(*texts):
    return [decimal.Decimal(t) for t in texts]


def _all():
    yield "null", Case(pa.null(), [None] * 4, no_nulls=True)
    yield "bool", Case(pa.bool_(), [True, False, True, True, False, True, True, False, True, True])
    for number in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()):
        yield str(number), Case(number, _NUMBERS)
    for bits, number in ((16, pa.float16()), (32, pa.float32()), (64, pa.float64())):
        yield f"float{bits}", Case(number, [float(n) for n in _NUMBERS])
    yield "decimal32", Case(pa.decimal32(9, 2), _decimals("1.25", "-2.50", "3.75", "1234567.89"))
    yield "decimal64", Case(pa.decimal64(18, 3), _decimals("1.250", "-2.500", "3.750", "123456789012.345"))
    yield "decimal128", Case(pa.decimal128(38, 4), _decimals("1.2500", "-2.5000", "3.7500", "12345678901234567890.1234"))
    yield (
        "decimal256",
        Case(pa.decimal256(76, 5), _decimals("1.25000", "-2.50000", "3.75000", "1234567890123456789012345678901234567890.12345")),
    )
    yield "date32", Case(pa.date32(), _DATES)
    yield "date64", Case(pa.date64(), _DATES)
    yield "time32_s", Case(pa.time32("s"), [_time(1), _time(45000), _time(86399), _time(0)])
    yield "time32_ms", Case(pa.time32("ms"), [_time(1, 1000), _time(45000), _time(86399, 999000), _time(0)])
    yield "time64_us", Case(pa.time64("us"), [_time(1, 1), _time(45000), _time(86399, 999999), _time(0)])
    yield "time64_ns", Case(pa.time64("ns"), [_time(1, 1), _time(45000), _time(86399, 999999), _time(0)])
    for unit in ("s", "ms", "us", "ns"):
        yield f"timestamp_{unit}", Case(pa.timestamp(unit), _MOMENTS)
        yield f"timestamp_{unit}_zone", Case(pa.timestamp(unit, "Europe/Berlin"), _UTC_MOMENTS)
        yield f"duration_{unit}", Case(pa.duration(unit), _NUMBERS)
    yield "interval_month_day_nano", Case(pa.month_day_nano_interval(), [(1, 2, 3), (4, 5, 6), (-7, 8, 9), (0, 0, 0)])
    yield "binary", Case(pa.binary(), _BLOBS)
    yield "large_binary", Case(pa.large_binary(), _BLOBS)
    yield "fixed_size_binary", Case(pa.binary(3), [b"\x01\x02\x03", b"\x04\x05\x06", b"\x07\x08\x09", b"\x00\x00\x00", b"\xff\xff\xff"])
    yield "utf8", Case(pa.string(), _TEXTS)
    yield "large_utf8", Case(pa.large_string(), _TEXTS)
    yield "binary_view", Case(pa.binary_view(), _BLOBS)
    yield "utf8_view", Case(pa.string_view(), _TEXTS)

    yield "list", Case(pa.list_(pa.int32()), _LISTS)
    yield "large_list", Case(pa.large_list(pa.int32()), _LISTS)
    yield "list_view", Case(pa.list_view(pa.int32()), _LISTS)
    yield "large_list_view", Case(pa.large_list_view(pa.int32()), _LISTS)
    yield "fixed_size_list", Case(pa.list_(pa.int16(), 2), [[1, 2], [3, 4], [5, None], [7, 8], [9, 10]])
    yield "list_utf8", Case(pa.list_(pa.string()), [["a", "b"], [], ["c", None], ["ddd"]])
    yield "struct", Case(_POINT, _POINTS)
    yield "struct_empty", Case(pa.struct([]), [{}, {}, {}, {}])
    yield "struct_nested", Case(pa.struct([("p", _POINT), ("l", pa.list_(_POINT))]), [
        {"p": {"x": 1, "name": "a"}, "l": [{"x": 2, "name": "b"}]}, {"p": None, "l": []},
        {"p": {"x": 3, "name": "c"}, "l": None}, {"p": {"x": 4, "name": "d"}, "l": [{"x": 5, "name": "e"}, None]},
    ])  # fmt: skip
    yield "list_struct", Case(pa.list_(_POINT), [[_POINTS[0], _POINTS[2]], [], [_POINTS[3]], [_POINTS[4], None]])
    yield "map", Case(pa.map_(pa.string(), pa.int64()), [[("a", 1), ("b", 2)], [], [("c", None)], [("d", 4)]])
    yield "sparse_union", Case(pa.sparse_union(_UNION_FIELDS, [5, 7]), _UNION_VALUES, no_nulls=True, build=_build_sparse_union)
    yield "dense_union", Case(pa.dense_union(_UNION_FIELDS, [5, 7]), _UNION_VALUES, no_nulls=True, build=_build_dense_union)

    for index in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()):
        yield f"dictionary_{index}", Case(pa.dictionary(index, pa.string()), ["a", "b", "a", "c", "b"])
    yield "dictionary_ordered", Case(pa.dictionary(pa.int8(), pa.int64(), ordered=True), [10, 20, 10, 30])
    dictionary = pa.dictionary(pa.int32(), pa.string())
    yield "list_dictionary", Case(pa.list_(dictionary), [["a", "b"], [], ["a", None], ["c"]])
    yield "struct_dictionary", Case(pa.struct([("d", dictionary)]), [{"d": "a"}, {"d": "b"}, {"d": None}, {"d": "a"}])
    for ends in (pa.int16(), pa.int32(), pa.int64()):
        yield (
            f"run_end_encoded_{ends}",
            Case(pa.run_end_encoded(ends, pa.string()), list("aaabbc"), no_nulls=True, build=_build_run_end_encoded),
        )
    yield "extension_uuid", Case(pa.uuid(), [
        "00112233-4455-6677-8899-aabbccddeeff", "ffeeddcc-bbaa-9988-7766-554433221100",
        "00000000-0000-0000-0000-000000000000", "01234567-89ab-cdef-0123-456789abcdef",
    ], build=_build_uuid)  # fmt: skip
    yield "extension_bool8", Case(pa.bool8(), [True, False, True, True], build=_build_bool8)


CASES = dict(_all())
