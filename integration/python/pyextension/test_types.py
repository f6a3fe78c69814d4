"""Type checkers know the package itself, without stubs of a library: what its objects give."""

import shutil
import sys

import checkers
import wheels

# Each line is right but for those with a comment, which is the code of mypy's error.
USES = """
import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Protocol
import arrowdevice
import numpy as np
import polars as pl
from arrowdevice import Array, Extension, RecordBatch, RecordReader, Schema, load, share

totals: Extension = load("libtotals.so")
out: RecordReader = totals.add_running_total(pl.DataFrame({"a": [1]}), "km")
load(3)  # arg-type
totals.counters.nothing  # attr-defined
help_of: str = totals.counters.__name__

class Stream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class Plain(Protocol):
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

def others(batch: RecordBatch, column: Array, reader: RecordReader) -> None:
    streams: list[Stream] = [batch, reader]
    arrays: list[Plain] = [batch, column]
    streams.append(column)  # arg-type
    arrays.append(reader)  # arg-type

def readers(out: RecordReader) -> Iterator[RecordBatch]:
    batches: Iterator[RecordBatch] = iter(out)
    for batch in out:
        c: int = batch  # assignment
        yield batch
    every: list[RecordBatch] = out.read_all()
    near: RecordReader = out.to_host()
    names: list[str] = out.names
    pl.DataFrame(out)
    yield next(out)

def parts(batch: RecordBatch) -> Array:
    column: Array = batch["a"]
    same: Array = batch[0]
    part: RecordBatch = batch[1:3]
    a: RecordBatch = batch["a"]  # assignment
    b: Array = batch[1:3]  # assignment
    batch[1.5]  # call-overload
    batch.nothing  # attr-defined
    batch.slice("a")  # arg-type
    length: int = len(batch) + batch.num_rows + batch.num_columns
    inside: bool = "a" in batch and batch == part
    schema: Schema = batch.schema
    moved: RecordBatch = batch.to_device("cuda:0").to_host().slice(1)
    with batch as entered:
        again: RecordBatch = entered
    for c in batch:
        d: RecordBatch = c  # assignment
    return column

def values(batch: RecordBatch, column: Array) -> None:
    tail: Array = column[1:]
    three = column[3]
    column["a"]  # call-overload
    for value in column:
        print(value)
    rows: list[dict[str, object]] = batch.to_pylist()
    items: list[object] = column.to_pylist()
    frame: pl.DataFrame = batch.to_polars()
    series: pl.Series = column.to_polars()
    other: pl.DataFrame = column.to_polars()  # assignment
    print(batch.to_pandas(), batch.to_pyarrow(), pl.DataFrame(batch), pl.Series(column), pl.from_arrow(batch))
    numbers = np.asarray(column) + np.from_dlpack(column)
    print(np.asarray(batch).shape, numbers.dtype)
    arrowdevice.Array.to_pylist(batch)  # arg-type

def schemas(schema: Schema) -> str:
    print(schema.to_pyarrow(), [name.upper() for name in schema.names])
    return str(schema)

async def later() -> None:
    result: RecordBatch = await totals.aggregate.aio(out, n=1)
    streamed: AsyncIterator[RecordBatch] = aiter(out)
    async for batch in out:
        kept: Array = batch["a"]
        bad: int = batch  # assignment

def shared(ticket: bytes, table: Plain) -> None:
    with share.open(ticket, timeout=1, owner_gone=lambda: print("gone")) as batch:
        rows: int = len(batch) + batch.num_rows
        arrays: list[Plain] = [batch]
        pl.DataFrame(batch)
        names: list[str] = batch.names
        nothing: int = batch.metadata  # assignment
    share.open("ticket")  # arg-type
    with share.share(table, openers=2) as offer:
        sent: bytes = offer.ticket
        offer.wait(timeout=1)
        offer.wait("1")  # arg-type
    view: memoryview = share.allocate(100)
    try:
        share.open(sent)
    except (share.OwnerGone, share.BadTicket) as e:
        kind: share.ShareError = e

try:
    asyncio.run(later())
except (arrowdevice.Cancelled, arrowdevice.Panic) as e:
    error: arrowdevice.Error = e
print(arrowdevice.__version__.upper())
"""


def test_type_checkers(tmp_path):
    source = tmp_path / "python"
    shutil.copytree(wheels.ROOT / "python", source)  # pip writes beside it
    options = ["--no-index", "--no-build-isolation", "--no-deps", "--no-cache-dir", "-w", tmp_path]
    wheels.run(sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", *options, source)
    environment = wheels.Environment(tmp_path / "environment")
    environment.install(*tmp_path.glob("*.whl"))
    environment.see_peers()
    checkers.compare(USES, environment, tmp_path)
