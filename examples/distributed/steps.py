"""What workers run: the step for one partition, in Go, in PyArrow and in Python, and the merge of results."""

import collections
import os
import re

# Results that come from another worker need not lie at multiples of 8 bytes.
os.environ.setdefault("ACERO_ALIGNMENT_HANDLING", "reallocate")

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

KEYS, SUMS = ["country", "day"], ["orders", "units", "cents", "rejected"]
CODE = r"^ *[A-Za-z][-/ ]?(?P<article>[0-9]{1,4})(?: *[x*] *(?P<units>[0-9]{1,2}))? *$"


def stream(path):
    """A file as a stream of batches. A row group is read when the consumer asks for its first batch."""
    file = pq.ParquetFile(path)
    return pa.RecordBatchReader.from_batches(file.schema_arrow, batches_of(file))


def batches_of(file):
    # One iter_batches over the file reads many row groups ahead.
    for row_group in range(file.num_row_groups):
        yield from file.iter_batches(row_groups=[row_group], use_threads=False)


def go(path, gpu=None):
    return summarize(stream(path), gpu)


def summarize(batches, gpu=None):
    import orders  # not above: what runs no step in Go does not load it

    return pa.table(orders.summarize(batches, gpu))


def pyarrow(path):
    return summarize_pyarrow(stream(path))


def summarize_pyarrow(batches):
    return merge([totals(batches.schema.empty_table()), *(totals(pa.table(batch)) for batch in batches)])


def totals(table):
    """The same in PyArrow's functions."""
    country = pc.utf8_upper(pc.utf8_trim(pc.fill_null(table["country"], "?"), " "))
    parts = pc.extract_regex(table["code"], CODE)
    text = pc.struct_field(parts, "units")
    units = pc.cast(pc.if_else(pc.equal(text, ""), "1", text), pa.int64())
    ok = pc.fill_null(pc.greater(units, 0), False)
    units = pc.if_else(ok, units, 0)
    columns = {
        "country": country,
        "day": pc.cast(pc.floor_temporal(table["time"], unit="day"), pa.date32()),
        "orders": pc.cast(ok, pa.int64()),
        "units": units,
        "cents": pc.multiply_checked(pc.fill_null(table["cents"], 0), units),
        "rejected": pc.cast(pc.invert(ok), pa.int64()),
    }
    return merge([pa.table(columns)])


def python(path):
    return summarize_python(stream(path))


def summarize_python(batches):
    """The same, row by row in Python."""
    code, groups = re.compile(CODE), collections.defaultdict(lambda: [0, 0, 0, 0])
    for batch in batches:
        for time, country, cents, text in zip(*(batch.column(name).to_pylist() for name in ["time", "country", "cents", "code"])):
            group = groups["?" if country is None else country.strip(" ").upper(), time.date()]
            match = code.match(text or "")
            units = int(match["units"] or 1) if match else 0
            if not units:
                group[3] += 1
                continue
            group[0] += 1
            group[1] += units
            group[2] += (cents or 0) * units
    rows = [(*key, *sums) for key, sums in sorted(groups.items())]
    types = [pa.string(), pa.date32(), *[pa.int64()] * 4]
    return pa.table([pa.array(column, t) for column, t in zip(zip(*rows), types)], names=KEYS + SUMS)


def merge(tables):
    """The sums of several results, sorted."""
    grouped = pa.concat_tables(tables).group_by(KEYS, use_threads=False).aggregate([(name, "sum") for name in SUMS])
    return grouped.rename_columns({f"{name}_sum": name for name in SUMS}).select(KEYS + SUMS).sort_by([(key, "ascending") for key in KEYS])
