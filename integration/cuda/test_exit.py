"""Objects that are live when a process ends."""

import pytest


@pytest.mark.simulator
@pytest.mark.at_exit
def test_nothing_is_left_but_contexts(machine, reports_at_exit):
    """By none of the processes in which the other tests ran. Numba and nanoarrow keep
    their references to the primary contexts for the life of the process: Numba one per
    device (it would release them in cuda.close(), which is not called at exit),
    nanoarrow two (its devices CUDA and CUDA_HOST are made once, and have no end). Go
    keeps one too, with a stream and a pool, where it took part: each of two libraries."""
    devices = 2 if machine == "two_devices" else 1
    for report in reports_at_exit:
        assert report is not None, "a process died"
        assert report["violations"] == []
        live = report["live"]
        libraries = live["pools"] // devices
        assert libraries in (0, 1, 2)
        assert live.pop("primary_references") == [3 + libraries] * devices
        rest = {name: value for name, value in live.items() if value not in (0, [0] * devices)}
        kept = {"streams": libraries * devices, "pools": libraries * devices}
        assert rest == (kept if libraries else {}), report["leaks"]


@pytest.mark.simulator
@pytest.mark.program
def test_leaks_are_reported(run_program):
    """The report lists objects that a program forgets: the other tests rely on that."""

    def forgetful():
        from numba import cuda

        import driver

        cuda.current_context()
        driver.ask(driver.address, "cuMemAlloc_v2", driver.size(4321))
        driver.ask(driver.handle, "cuStreamCreate", 1)
        driver.ask(driver.handle, "cuEventCreate", 0)

    live = run_program(forgetful).check().report["live"]
    assert live["device_bytes"] == [4321]
    assert (live["allocations"], live["streams"], live["events"]) == (1, 1, 1)
