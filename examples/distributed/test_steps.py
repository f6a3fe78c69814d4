"""The step in the process of the test: its result, its memory, a GPU."""

import ctypes
import datetime
import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import data
import steps


def test_all_steps_have_the_same_result(orders):
    path = orders.paths[0]
    assert steps.go(path).equals(orders.first)
    assert steps.pyarrow(path).equals(orders.first)
    assert steps.python(path).equals(orders.first)


def test_the_data_has_what_the_step_is_for(orders):
    table = steps.go(orders.paths[0])
    read = pq.read_table(orders.paths[0])
    assert all(read[name].null_count for name in ["country", "cents", "code"])
    countries = len({country.strip().upper() for country in data.COUNTRIES}) + 1
    assert table.num_rows == countries * data.DAYS
    rejected, ordered, units = (sum(table[name].to_pylist()) for name in ["rejected", "orders", "units"])
    assert rejected + ordered == read.num_rows and 0 < rejected < ordered < units


def test_the_data_is_the_same_every_time(orders, tmp_path):
    for first, second in zip(orders.paths, data.write(tmp_path, 1_000_000, 8)):
        assert pq.read_table(first).equals(pq.read_table(second))


def test_times_before_1970(tmp_path):
    times = [datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime.datetime(1970, 1, 1)]
    table = pa.table([times, ["NO", None], [-1, 1], ["A-1", None]], schema=data.SCHEMA)
    pq.write_table(table, tmp_path / "old.parquet")
    assert steps.go(tmp_path / "old.parquet").equals(steps.pyarrow(tmp_path / "old.parquet"))


@pytest.mark.parametrize("rows", [0, 1])
def test_small_files(rows, tmp_path):
    [path] = data.write(tmp_path, rows, 1)
    assert steps.go(path).equals(steps.pyarrow(path)) and steps.go(path).num_rows == rows


def test_one_row_group_at_a_time(tmp_path):
    """The memory of a step is that of some row groups, and not of the file."""
    [path] = data.write(tmp_path, 40 * data.ROW_GROUP, 1)
    before, most = pa.total_allocated_bytes(), 0
    batches = steps.stream(path)

    def watched():
        nonlocal most
        for batch in batches:
            most = max(most, pa.total_allocated_bytes() - before)
            yield batch

    result = steps.summarize(pa.RecordBatchReader.from_batches(batches.schema, watched()))
    assert sum(result["orders"].to_pylist()) > 30 * data.ROW_GROUP
    # Last: PyArrow's threads free memory of a table after read_table has returned, which would be part of before.
    assert 0 < most < pq.read_table(path).nbytes / 4


def simulator():
    """The counters of the simulated driver in this process. On a GPU its tests are skipped."""
    driver = ctypes.CDLL(os.environ.get("CDEVICE_CUDA_DRIVER", "libcuda.so.1"))
    if not hasattr(driver, "cudasim_report"):
        pytest.skip("counters of the simulated driver")
    text = ctypes.create_string_buffer(1 << 20)
    assert driver.cudasim_report(text, ctypes.c_size_t(len(text))) <= len(text)
    return json.loads(text.value)


def test_over_a_gpu(orders):
    before = simulator()["bytes"]
    assert steps.go(orders.paths[0]).equals(orders.first)
    assert simulator()["bytes"] == before
    assert steps.go(orders.paths[0], gpu=0).equals(orders.first)
    after = simulator()
    size = pq.read_table(orders.paths[0]).nbytes
    assert all(after["bytes"][way] - before[way] > 0.9 * size for way in ["htod", "dtoh"])
    assert after["violations"] == [] and after["live"]["device_bytes"] == [0]


def test_no_such_gpu(orders):
    with pytest.raises((ValueError, IndexError, NotImplementedError, RuntimeError), match="99"):
        steps.go(orders.paths[0], gpu=99)
