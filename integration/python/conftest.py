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


def counted(module=None):
    """Objects that all sides have allocated and not released, and those that a collector of garbage has not found yet."""
    count = {"pyarrow_bytes": pa.total_allocated_bytes(), **golib.stats(), "sources_in_python": gosource.sources()}
    count.update((f"cpp_{name}", n) for name, n in cpp.stats().items())
    # The other peers count nothing; they hold memory of Go and PyArrow, which do.
    return count | {"duckdb_bytes": peers.duckdb_bytes()} if hasattr(module, "peers") else count


def alive(module=None):
    """Objects that all sides have allocated and not released."""
    # pytest keeps the exception of a failed test here, and so its objects alive,
    # until the next test begins.
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        vars(sys).pop(name, None)
    gc.collect()
    golib.ext.gc()
    return counted(module)


_at_last = {}  # alive at the end of the test before


@pytest.fixture(autouse=True)
def nothing_leaks(request):
    global _at_last
    before = counted(request.module)
    if before != _at_last:  # then there may be garbage
        before = alive(request.module)
    gc.freeze()  # the collection at the end visits only objects of the test
    yield
    # A failed test did not reach its end, where it releases its objects.
    if not getattr(request.node, "failed", False):
        _at_last = counted(request.module)
        if _at_last != before:
            _at_last = gosource.settled(lambda: alive(request.module), before)
        assert _at_last == before, "something is not released"


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
