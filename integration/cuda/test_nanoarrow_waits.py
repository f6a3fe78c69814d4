"""What nanoarrow does not wait for, which the caller of its functions must: go.py waits for it."""

import nanoarrow as na
import pytest
from nanoarrow.device import c_device_array

import driver
import go
import nano
import simulator


def known_defect(works, reason):
    """An expected failure: if it works one day, the test fails and can go."""
    if works:
        pytest.fail(f"this works now: {reason}")
    pytest.xfail(reason)


@pytest.mark.usefixtures("golang")
@pytest.mark.simulator
def test_copy_does_not_wait_for_the_event(stream, other):
    """But for an array whose sizes nanoarrow reads: see test_go_to_nanoarrow.py."""
    with go.on_device("int64", "valid", stream=stream) as made:
        array = c_device_array(made)
        back = nano.copy(array, nano.resolve(nano.CPU, 0), other)
        driver.call("cuStreamSynchronize", driver.handle(other))
        del array, back
    assert simulator.report()["violations"]
    simulator.library.cudasim_forget_violations()


@pytest.mark.simulator
@pytest.mark.program
def test_sizes_are_there_when_the_copy_to_pageable_memory_is_late(run_program):
    def program():
        import os

        import nanoarrow as na
        from numba import cuda

        import driver
        import nano
        import simulator

        cuda.current_context()
        stream = driver.ask(driver.handle, "cuStreamCreate", driver.NON_BLOCKING)
        array = nano.copy(nano.array(["abc", None, "defghij"], na.string()), nano.resolve(nano.CUDA, 0), stream)
        cuda.synchronize()
        simulator.library.cudasim_pause()
        print(*nano.View(array, stream).sizes, flush=True)
        # The late copy would write to memory that was freed.
        os._exit(0)

    sizes = [int(size) for size in run_program(program, "pageable_async=1").check().output.split()]
    assert sizes[:2] == [1, 16]
    known_defect(
        sizes[2] == 10,
        "nanoarrow 0.6.0: synchronize_event(device, NULL, stream) returns at once, and so the size is read from "
        "memory that the copy has not reached. Drivers that wait in copies to pageable memory hide it",
    )


@pytest.mark.simulator
@pytest.mark.machines("random")
def test_array_on_the_host_is_there_when_the_copy_returns(stream):
    source = nano.array(list(range(1, 1001)), na.int64())
    array = nano.copy(source, nano.resolve(nano.CUDA, 0), stream)
    driver.call("cuStreamSynchronize", driver.handle(stream))
    with driver.gate(stream):
        back = nano.copy(array, nano.resolve(nano.CPU, 0), stream)
        early = nano.values(back)
    assert nano.values(back) == list(range(1, 1001))
    known_defect(early == nano.values(back), "nanoarrow 0.6.0: the same, where an array on the CPU is made")


@pytest.mark.simulator
@pytest.mark.program
@pytest.mark.parametrize("by_go", [False, True], ids=["by_nanoarrow", "by_go"])
def test_release_waits_for_the_work_on_the_memory(run_program, by_go):
    """nanoarrow allocates in stream order, so cuMemFree does not wait for the device, as the manual says. The caller must wait
    before it releases an array, and Go calls the release callback of an array that nobody read without a look at its event."""

    def program():
        import driver
        import nano

        array = nano.copy(nano.array(list(range(1000)), nano.nanoarrow.int32()), nano.resolve(nano.CUDA, 0), 2)
        with driver.current_primary_context(), driver.gate(2):
            back = nano.copy(array, nano.resolve(nano.CUDA, 0), 2)
            del array
        del back

    def through_go():
        import golib
        from numba import cuda

        import driver
        import go
        import nano

        cuda.current_context()
        with driver.stream() as stream:
            host = nano.array(list(range(1000)), nano.nanoarrow.int64())
            with driver.gate(stream):
                golib.GoArray.from_arrow(go.handed_by_nanoarrow(host, stream)).release()
                print("released")

    ended = run_program(through_go if by_go else program)
    assert ended.output == ("released\n" if by_go else ""), ended.errors
    known_defect(
        not ended.report["violations"],
        "nanoarrow 0.6.0 frees memory with cuMemFree that it allocated with cuMemAllocAsync, without waiting for its event",
    )


@pytest.mark.simulator
@pytest.mark.program
def test_end_of_a_stream_on_the_device(run_program):
    def program():
        import ctypes

        import golib
        from gostream import GoStream, released
        from numba import cuda

        import driver
        import go
        import nano

        cuda.current_context()
        with driver.stream() as stream:
            handed = go.copied_by_nanoarrow("int64", "nulls", stream, kind=golib.GoBatch)
            handed.wait()
            given = nano.device_stream([handed], nano.resolve(nano.CUDA, 0))
            with GoStream.take(ctypes.addressof(given)) as there, released([there.next()]):
                print("one", flush=True)
                assert there.next() is None
                print("the end", flush=True)

    ended = run_program(program)
    assert ended.output.startswith("one\n"), ended.errors
    works = "the end" in ended.output
    assert works or "SIGSEGV" in ended.errors
    known_defect(works, "nanoarrow 0.6.0 gives a released array a release callback, which calls the NULL of the plain one")
