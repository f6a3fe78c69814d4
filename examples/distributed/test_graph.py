"""The graph on worker processes: its result, a killed worker, errors and panics of Go, threads."""

import collections
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import data
import graph
import steps
import trouble

TIMEOUT = 180  # seconds until a graph counts as hanging


@pytest.fixture(autouse=True)
def no_worker_is_lost(request, client):
    """Workers live on after a test, except the one that a test kills."""
    before = processes(client)
    yield
    if "killed" not in request.node.name:
        assert processes(client) == before


def processes(client):
    return sorted(client.run(os.getpid).values())


@pytest.mark.parametrize("step", ["go", "pyarrow"])
def test_result(step, client, orders, tmp_path):
    table, _ = graph.summarize(client, orders.paths, step, tmp_path)
    assert table.equals(orders.own)
    ended = graph.runs(tmp_path)
    assert sorted(path for path, *_ in ended) == orders.paths
    assert {process for _, process, *_ in ended} <= set(processes(client))


def test_over_gpus(client, orders, tmp_path):
    table, _ = graph.summarize(client, orders.paths, "go", tmp_path, gpu=0)
    assert table.equals(orders.own)


def test_a_killed_worker(client, orders, tmp_path):
    before = processes(client)
    table, killed = graph.summarize(client, orders.paths, "go", tmp_path, kill=True)
    assert table.equals(orders.own)
    assert killed in before and killed not in processes(client)
    ended = graph.runs(tmp_path)
    paths = collections.Counter(path for path, *_ in ended)
    lost = {path for path, process, *_ in ended if process == killed}
    again = {path for path, count in paths.items() if count > 1}
    assert sorted(paths) == orders.paths and again and again <= lost
    client.wait_for_workers(2, timeout=TIMEOUT)
    assert len(processes(client)) == 2


def test_bad_orders_are_an_error_at_the_client(client, orders, tmp_path):
    bad = data.orders(2 * data.ROW_GROUP, seed=1).to_pydict()
    bad["time"][data.ROW_GROUP + 7] = None
    schema = pa.schema([field.with_nullable(True) for field in data.SCHEMA])
    pq.write_table(pa.table(bad, schema=schema), tmp_path / "bad.parquet", row_group_size=data.ROW_GROUP)
    log = tmp_path / "log"
    log.mkdir()
    with pytest.raises(ValueError, match=f"column time is null in row {data.ROW_GROUP + 7}"):
        graph.summarize(client, [*orders.paths, str(tmp_path / "bad.parquet")], "go", log)


def test_an_error_of_a_source_reaches_the_client(client, tmp_path):
    """The second row group is damaged. The stream gives Go PyArrow's error."""
    [path] = data.write(tmp_path, 2 * data.ROW_GROUP, 1)
    with open(path, "r+b") as file:
        file.seek(pq.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset)
        file.write(b"\xff" * 64)
    future = client.submit(steps.go, path, pure=False)
    assert "Deserializing page header failed" in str(future.exception(timeout=TIMEOUT))


def test_a_panic_is_an_error_and_the_worker_lives(client):
    future = client.submit(trouble.panic_with, "the text of a panic", pure=False)
    error = future.exception(timeout=TIMEOUT)
    assert isinstance(error, trouble.Panic) and "the text of a panic" in str(error)


def test_threads_of_a_worker_are_in_go_at_the_same_time(client):
    """Each call waits in Go for another one of the same process, which could not begin if the first held the GIL."""
    worker, *_ = client.run(os.getpid)  # scheduler_info may be what the client's own thread has just fetched: no workers
    calls = [client.submit(trouble.meet, 2, workers=[worker], pure=False) for _ in range(2)]
    assert [call.result(timeout=TIMEOUT) for call in calls] == [None, None]


def test_workers_are_spawned(client):
    """A forked process has the command line of this one."""
    for line in client.run(lambda: open("/proc/self/cmdline").read()).values():
        assert "spawn_main" in line


def test_files_that_have_changed_are_read_again(client, tmp_path):
    """Although the client still holds the results of the same graph."""
    path, futures = str(tmp_path / "orders.parquet"), []
    for turn in range(2):
        pq.write_table(data.orders(1000, seed=turn), path)
        futures.append(graph.steps_of(client, [path], "go", tmp_path))
        assert futures[-1][0].result(timeout=TIMEOUT).equals(steps.totals(pq.read_table(path)))
