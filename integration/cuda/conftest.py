"""Rules for every test: at its end, the driver has no live objects that it did not have
before, and no violations."""

import gc
import os
import sys

import pytest
from numba import cuda

import cudacore
import driver
import go
import gosource
import nano
import programs
import simulator


# In both environments, as Numba and numba-cuda are two packages; those of cuda-core, which only one of them has; and the others,
# of nanoarrow and of processes, which are the same in both, once.
_OF_BOTH = ["test_go_cudaarray.py", "test_go_events.py", "test_go_ipc.py", "test_go_share.py"]
_OF_CUDA_13 = ["test_go_dlpack.py"]


def pytest_ignore_collect(collection_path):
    if collection_path.suffix != ".py" or collection_path.name in _OF_BOTH:
        return None
    return (collection_path.name in _OF_CUDA_13) != cudacore.is_there or None


def settle():
    """Completes the work on all devices, and frees the memory that Numba keeps to free
    later."""
    # pytest keeps the exception of a failed test here, and so its objects alive,
    # until the next test begins.
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        vars(sys).pop(name, None)
    gc.collect()
    for gpu in cuda.gpus:
        with gpu:
            context = cuda.current_context()
            context.synchronize()
            context.deallocations.clear()
            context.memory_manager.deallocations.clear()
    cuda.current_context()  # is the one of device 0 now
    cudacore.use_device(0)


@pytest.fixture
def machine():
    """The name of the machine that a test runs on; None for tests that start their
    own processes."""


@pytest.fixture(scope="session")
def contexts():
    """Objects that Numba and nanoarrow make at first use and keep for the life of the
    process: references to the primary contexts."""
    settle()
    nano.resolve(nano.CUDA, 0)
    cudacore.open_devices()
    gc.freeze()  # the collections visit only objects of the tests


@pytest.fixture(scope="session")
def open_gpus(contexts):
    go.open_gpus()


@pytest.fixture
def golang(open_gpus):
    """For tests that Go takes part in, which must leave nothing in Go either."""


_at_last = None  # what lived at the end of the test before, after its garbage was collected


@pytest.fixture(autouse=True)
def nothing_is_left(request, machine):
    global _at_last
    if machine is None or request.node.get_closest_marker("at_exit"):
        yield
        return
    request.getfixturevalue("contexts")
    with_go = "golang" in request.fixturenames
    if with_go:
        request.getfixturevalue("open_gpus")
    if not simulator.is_simulator or simulator.report()["live"] != _at_last:
        settle()
    if with_go:
        assert gosource.settled(go.alive, go.nothing()) == go.nothing()
    if not simulator.is_simulator:
        yield
        return
    simulator.library.cudasim_reset_counters()  # and violations of other tests
    before = simulator.report()["live"]
    yield
    # A failed test did not reach its end, where it releases its objects.
    if not getattr(request.node, "failed", False):
        request.node.funcargs.clear()  # the values of its fixtures
        settle()
        if with_go:
            assert gosource.settled(go.alive, go.nothing()) == go.nothing()
            settle()  # frees what Go had of Numba, now that Go has dropped it
        report = simulator.report()
        assert report["violations"] == []
        assert report["live"] == before, report["leaks"]
        _at_last = before


@pytest.fixture
def stream():
    """A stream that waits for no other (CU_STREAM_NON_BLOCKING): its handle."""
    with driver.stream() as handle:
        yield handle


@pytest.fixture
def other():
    """Another one."""
    with driver.stream() as handle:
        yield handle


@pytest.fixture
def run_program():
    """programs.run, on machines of the test's own."""
    return programs.run


def pytest_runtest_setup(item):
    if simulator.is_simulator:
        return
    if item.get_closest_marker("simulator"):
        pytest.skip(simulator.WHY_NOT)
    if item.get_closest_marker("two_devices") and len(cuda.gpus) < 2:
        pytest.skip("this test needs two devices")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        item.failed = True
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CDEVICE_REQUIRE") == "cuda":
        report.outcome = "failed"
        report.longrepr = f"CDEVICE_REQUIRE=cuda, and this was skipped: {report.longrepr[2]}"
    return report
