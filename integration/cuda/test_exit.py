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
def test_close_leaves_nothing(run_program):
    def program():
        import numpy
        from numba import cuda

        for gpu in cuda.gpus:
            with gpu:
                stream, event = cuda.stream(), cuda.event()
                arrays = [cuda.to_device(numpy.arange(10)), cuda.pinned_array(10), cuda.mapped_array(10)]
                arrays.append(cuda.managed_array(10))
                event.record(stream)
        del stream, event, arrays
        cuda.close()

    report = run_program(program, "devices=2").check().report
    assert report["leaks"] == []
    assert report["violations"] == []


@pytest.mark.simulator
@pytest.mark.program
def test_leaks_are_reported(run_program):
    """The report lists objects that a program forgets: the other tests rely on that."""

    def program():
        from numba import cuda

        import driver

        cuda.current_context()
        driver.ask(driver.address, "cuMemAlloc_v2", driver.size(4321))
        driver.ask(driver.handle, "cuStreamCreate", 1)
        driver.ask(driver.handle, "cuEventCreate", 0)
        cuda.close()

    # A primary context that is reset takes its memory, streams and events along.
    assert run_program(program).check().report["leaks"] == []

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


@pytest.mark.simulator
@pytest.mark.program
def test_use_after_free_is_reported(run_program):
    """And the context is of no use any more, as after a fault on a device."""

    def program():
        from numba import cuda
        from numba.cuda.cudadrv.driver import CudaAPIError

        import driver

        target = cuda.pinned_array(1000, "u1")
        one, other = (driver.handle(driver.ask(driver.handle, "cuStreamCreate", driver.NON_BLOCKING)) for _ in range(2))
        at = driver.ask(driver.address, "cuMemAllocAsync", driver.size(1000), one)
        driver.call("cuStreamSynchronize", one)
        gate = driver.Gate(other.value)
        driver.call("cuMemcpyDtoHAsync_v2", driver.handle(target.ctypes.data), driver.address(at), driver.size(1000), other)
        driver.call("cuMemFreeAsync", driver.address(at), one)
        driver.call("cuStreamSynchronize", one)
        gate.open()
        for work in cuda.synchronize, cuda.stream:
            try:
                work()
            except CudaAPIError as e:
                print(e.code)

    ended = run_program(program)
    assert ended.output == "700\n700\n", ended.errors
    # The gate is opened after the free was waited for, so the copy does come after it.
    (violation,) = ended.report["violations"]
    assert "cuMemcpyDtoHAsync touched memory" in violation and "after it was freed" in violation


@pytest.mark.simulator
@pytest.mark.program
def test_driver_is_not_usable_after_fork(run_program):
    """As with CUDA: Numba names the reason."""

    def program():
        import os

        from numba import cuda
        from numba.cuda.cudadrv.error import CudaDriverError

        cuda.current_context()
        child = os.fork()
        if child == 0:
            try:
                cuda.device_array(10)
            except CudaDriverError as e:
                os._exit(7 if "before forking" in str(e) else 8)
            os._exit(9)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    assert run_program(program).check().output == "7\n"


@pytest.mark.simulator
@pytest.mark.program
def test_per_thread_default_stream_instead_of_the_legacy_one(run_program):
    """Numba looks for the names with _ptds and _ptsz then. Work on the default stream
    of one thread does not wait for that of another."""

    def program():
        import threading

        import numpy
        from numba import cuda

        import driver

        source = cuda.pinned_array(1000, "i8")
        source[:] = 5
        first, second = cuda.device_array(1000, "i8"), cuda.device_array(1000, "i8")
        got = []

        def work():
            second.copy_to_device(source)
            got.append(second.copy_to_host())

        gate = driver.Gate(2)
        event = cuda.event()
        event.record()  # on this thread's stream, behind the gate
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        print(bool((got[0] == 5).all()), event.query())
        gate.open()
        first.copy_to_device(numpy.full(1000, 6))
        print(bool((first.copy_to_host() == 6).all()), event.query())

    ended = run_program(program, "delay=100", {"NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM": "1"}).check()
    assert ended.output == "True False\nTrue True\n"


@pytest.mark.simulator
@pytest.mark.program
@pytest.mark.parametrize("options", ["devices=17", "schedule=sometimes", "delay=-1", "wrong=1", "delay"])
def test_options_that_are_no_options(run_program, options):
    def program():
        from numba import cuda

        cuda.current_context()

    ended = run_program(program, options)
    assert ended.status == -6, ended.errors
    assert options.split("=")[0] in ended.errors
