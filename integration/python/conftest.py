"""The rule for every test: at its end, neither side has live objects that it did not
have before."""

import gc
import sys

import pyarrow as pa
import pytest

import cpp
import golib
import gosource
import peers


def alive_with_peers():
    """And DuckDB's memory. The others count nothing; they hold memory of Go and PyArrow, which do."""
    return {**alive(), "duckdb_bytes": peers.duckdb_bytes()}


def alive():
    """Objects that all sides have allocated and not released."""
    # pytest keeps the exception of a failed test here, and so its objects alive,
    # until the next test begins.
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        vars(sys).pop(name, None)
    gc.collect()
    golib.gc()
    cpp_stats = {f"cpp_{name}": count for name, count in cpp.stats().items()}
    return {"pyarrow_bytes": pa.total_allocated_bytes(), **golib.stats(), "sources_in_python": gosource.sources(), **cpp_stats}


@pytest.fixture(autouse=True)
def nothing_leaks(request):
    count = alive_with_peers if hasattr(request.module, "peers") else alive
    before = count()
    gc.freeze()  # the collection at the end visits only objects of the test
    yield
    # A failed test did not reach its end, where it releases its objects.
    if not getattr(request.node, "failed", False):
        assert gosource.settled(count, before) == before, "something is not released"


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left(request):
    """At the end of the whole run every counter of Go and of C++ is at zero, and
    PyArrow's is as at the start, which modules hold."""
    at_first = pa.total_allocated_bytes()
    yield
    if not request.session.testsfailed:
        ended = {name: 0 for name in alive()} | {"pyarrow_bytes": at_first}
        assert gosource.settled(alive, ended) == ended


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if outcome.get_result().failed:
        item.failed = True


def pytest_sessionfinish():
    peers.close()
    gc.unfreeze()  # nanobind, below DuckDB, reports live objects at exit
