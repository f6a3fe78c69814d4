"""The libraries that speak plain streams, __arrow_c_stream__, behind one face. Each peer
takes a stream in its own way and gives it back in its own way."""

import dataclasses
import functools

import duckdb
import nanoarrow
import pandas
import polars
import pyarrow as pa

# The pandas of Python 3.10 takes no streams and arrays: there it is PyArrow that does.
if not hasattr(pandas.DataFrame, "from_arrow"):
    pandas.DataFrame.from_arrow = lambda source: pa.table(source).to_pandas()
    pandas.Series.from_arrow = lambda source: pa.array(source).to_pandas()

LISTS_OF_VIEWS = {"list_view", "large_list_view"}
RUN_ENDS = {"run_end_encoded_int16", "run_end_encoded_int32", "run_end_encoded_int64"}
UNIONS = {"sparse_union", "dense_union"}
VIEWS = {"binary_view", "utf8_view"}
DURATIONS = {"duration_s", "duration_ms", "duration_us", "duration_ns"}


@dataclasses.dataclass(frozen=True, eq=False)
class Peer:
    """take makes an object of the peer's own of an object with __arrow_c_stream__; rows are its
    Python values. The sets hold names of arrays.CASES, or pairs of a name and a variant."""

    name: str
    take: callable
    rows: callable
    refuses: set = frozenset()  # taking or reading raises, for reasons of the type
    refuses_of_go: set = frozenset()  # the same, for the structs of one producer only
    keeps: set = frozenset()  # its own __arrow_c_stream__ raises, or does worse
    changes: set = frozenset()  # it has other values afterwards
    converts_structs: bool = False  # the types of fields depend on their values

    def does(self, what, name, variant):
        """Reports whether a case is in one of the sets."""
        return not {name, (name, variant)}.isdisjoint(what)

    def takes_of_go(self, name, variant):
        return not self.does(self.refuses | self.refuses_of_go, name, variant)

    def takes_of_pyarrow(self, name, variant):
        return not self.does(self.refuses, name, variant)

    def __str__(self):
        return self.name


@functools.cache
def database():
    return duckdb.connect()


def relation(source):
    """A lazy relation, on a cursor of its own: a connection has one open result at a time."""
    return database().cursor().sql("from source")


def duckdb_bytes():
    """The memory of DuckDB's that is in use."""
    return database().execute("select sum(memory_usage_bytes)::bigint from duckdb_memory()").fetchone()[0]


def close():
    """Ends the database. Afterwards there is a new one."""
    database().close()
    database.cache_clear()


class Batches:
    """A stream of record batches, as often as it is asked for."""

    def __init__(self, *batches, schema=None):
        self._batches, self._schema = batches, schema or batches[0].schema

    def __arrow_c_stream__(self, requested_schema=None):
        return pa.RecordBatchReader.from_batches(self._schema, self._batches).__arrow_c_stream__()


class Hidden:
    """Hides all of an object but its stream."""

    def __init__(self, source):
        self._source = source

    def __arrow_c_stream__(self, requested_schema=None):
        return self._source.__arrow_c_stream__()


POLARS = Peer(
    "polars",
    take=polars.DataFrame,
    rows=lambda frame: frame.rows(named=True),
    refuses={"decimal256", "interval_month_day_nano"} | LISTS_OF_VIEWS | UNIONS | RUN_ENDS,
    # Slices with null counts of -1: test_defects.py.
    refuses_of_go={("fixed_size_list", "sliced"), ("fixed_size_list", "empty_part")},
    keeps={"decimal32", "decimal64"},
    changes={"date64", "extension_uuid"},
)
DUCKDB = Peer(
    "duckdb",
    take=relation,
    rows=lambda read: read.to_arrow_table().to_pylist(),
    refuses={"float16", "decimal256", "dense_union"}
    | {("sparse_union", variant) for variant in ("nulls", "valid", "sliced")},
    changes={"interval_month_day_nano", "extension_uuid"} | DURATIONS,
)
PANDAS = Peer(
    "pandas",
    take=pandas.DataFrame.from_arrow,
    rows=lambda frame: frame.to_dict("records"),
    refuses=UNIONS,
    keeps={"map"},
    changes={(name, "sliced") for name in LISTS_OF_VIEWS},
    converts_structs=True,
)
NANOARROW = Peer(
    "nanoarrow",
    take=lambda source: nanoarrow.ArrayStream(source).read_all(),
    rows=lambda array: array.to_pylist(),
)
PEERS = [POLARS, DUCKDB, PANDAS, NANOARROW]


def table(native):
    """The contents of a peer's object, by its own stream."""
    return pa.table(Hidden(native))
