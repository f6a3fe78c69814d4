"""Orders as they might come from shops, in Parquet files. The same numbers of rows and files give the same data."""

import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = pa.schema([
    pa.field("time", pa.timestamp("us"), nullable=False),
    pa.field("country", pa.string()),
    pa.field("cents", pa.int64()),
    pa.field("code", pa.string()),
])
ROW_GROUP = 1 << 16
DAYS = 90
COUNTRIES = ["NO", "PE", "IN", "de", "FR ", " jp", "US", "Us", "BR", "KE", "no", "NZ"]


def codes(count, random):
    """Codes as people type them. About one in twenty is none."""
    letters, articles, units = random.integers(0, 26, count), random.integers(0, 10_000, count), random.integers(0, 40, count)
    texts = []
    for letter, article, n, form in zip(letters.tolist(), articles.tolist(), units.tolist(), random.integers(0, 20, count).tolist()):
        letter = chr((ord("A") if form % 3 else ord("a")) + letter)
        quantity = ["", "", f"x{n}", f" x {n}", f"*{n} "][form % 5]
        texts.append("n/a" if form == 19 else f"{' ' * (form == 7)}{letter}{['-', '/', ' ', ''][form % 4]}{article:0{1 + form % 4}}{quantity}")
    return pa.array(texts)


def orders(rows, seed):
    """A table of orders. Some have no country, no price or no code."""
    random = np.random.default_rng(seed)
    start = np.datetime64("2024-01-01", "us").astype(np.int64)
    times = start + random.integers(0, DAYS * 86_400_000_000, rows)
    countries = pa.array(COUNTRIES).take(pa.array(random.integers(0, len(COUNTRIES), rows), mask=random.random(rows) < 0.02))
    cents = pa.array(random.lognormal(8, 1, rows).astype(np.int64), mask=random.random(rows) < 0.03)
    texts = codes(20_000, random).take(pa.array(random.integers(0, 20_000, rows), mask=random.random(rows) < 0.01))
    return pa.table([pa.array(times).cast(pa.timestamp("us")), countries, cents, texts], schema=SCHEMA)


def write(folder, rows, files):
    """Writes orders to a folder, and returns the paths of the files."""
    paths = [pathlib.Path(folder) / f"orders-{i:03}.parquet" for i in range(files)]
    for i, path in enumerate(paths):
        part = rows * (i + 1) // files - rows * i // files
        pq.write_table(orders(part, seed=i), path, row_group_size=ROW_GROUP)
    return [str(path) for path in paths]
