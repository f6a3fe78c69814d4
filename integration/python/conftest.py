"""What every test is held to: at its end, nothing is alive on either side that
was not alive before."""

import gc
import sys

import pyarrow as pa
import pytest

import cpp
import golib
import gosource


def alive():
    """What all sides have allocated and not released."""
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
    before = alive()
    gc.freeze()  # the collection at the end looks at what the test made, and no further
    yield
    # A failed test did not come to the end, where it releases what it made.
    if not getattr(request.node, "failed", False):
        assert gosource.settled(alive, before) == before, "something is not released"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if outcome.get_result().failed:
        item.failed = True
