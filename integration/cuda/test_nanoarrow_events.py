"""The event of a device array: where nanoarrow records it, where it waits for it, and
where it does not."""

import ctypes

import nanoarrow as na
import numpy as np
import pytest
from nanoarrow.c_schema import c_schema
from nanoarrow.device import DeviceType, c_device_array
from numba import cuda

import abi
import capsules
import driver
import machines
import nano
import simulator
from helpers import pinned

SIZES_CAN_BE_READ = [name for name in machines.MACHINES if name != "random"]


class Produced:
    """An array of a producer whose stream is still at work: memory of Numba, filled on
    a stream, with an event recorded after it."""

    def __init__(self, type, stream, *hosts, length, device=0):
        self.buffers = [host if host is None else cuda.device_array(len(host), host.dtype) for host in hosts]
        for buffer in self.buffers:
            if buffer is not None:
                buffer.gpu_data.memset(0)
        cuda.synchronize()
        self.event = ctypes.c_void_p(driver.ask(driver.handle, "cuEventCreate", driver.DISABLE_TIMING))
        self._hosts, self._type, self._stream = [h if h is None else pinned(h) for h in hosts], type, stream
        self._length, self._device = length, device

    def work(self):
        for host, buffer in zip(self._hosts, self.buffers):
            if host is not None:
                buffer.copy_to_device(host, stream=cuda.external_stream(self._stream))
        driver.record(self.event.value, self._stream)

    def array(self):
        addresses = [b if b is None else b.device_ctypes_pointer.value for b in self.buffers]
        tree = capsules.Tree(self._length, *addresses, keep=self)
        struct = capsules.export(tree, abi.CUDA, self._device, ctypes.addressof(self.event))
        return c_device_array(capsules.Produced(c_schema(self._type), struct))

    def close(self):
        driver.call("cuEventDestroy_v2", self.event)


@pytest.fixture
def numbers(stream):
    produced = Produced(na.int64(), stream, None, np.arange(1, 1001), length=1000)
    yield produced
    produced.close()


@pytest.fixture
def words(stream):
    offsets, data = np.array([0, 3, 10], "i4"), np.frombuffer(b"abcdefghij", "u1")
    produced = Produced(na.string(), stream, None, offsets, data, length=2)
    yield produced
    produced.close()


def test_copy_records_an_event_behind_its_work(stream):
    source = nano.array(pinned(np.arange(1000)))
    with driver.gate(stream) as gate:
        array = nano.copy(source, nano.resolve(nano.CUDA, 0), stream)
        assert not driver.is_complete(nano.event(array))
        gate.open()
        nano.wait(nano.resolve(nano.CUDA, 0), nano.sync_event(array))
        assert driver.is_complete(nano.event(array))


@pytest.mark.simulator
def test_event_is_destroyed_with_the_array(stream):
    source = nano.array([1, 2, 3], na.int32())
    array = nano.copy(source, nano.resolve(nano.CUDA, 0), stream)
    nano.wait(nano.resolve(nano.CUDA, 0), nano.sync_event(array))
    event = nano.event(array)
    del array
    with pytest.raises(driver.Error, match="CUDA_ERROR_(INVALID_HANDLE|CONTEXT_IS_DESTROYED)"):
        driver.is_complete(event)


def test_host_array_has_no_event(stream):
    source = nano.array([1, 2, 3], na.int32())
    array = nano.copy(source, nano.resolve(nano.CUDA, 0), stream)
    back = nano.copy(array, nano.resolve(nano.CPU, 0), stream)
    assert nano.sync_event(back) is None
    driver.call("cuStreamSynchronize", driver.handle(stream))


def test_stream_waits_for_the_event_of_an_array(numbers, stream, other):
    """As a consumer does it before it copies: nanoarrow leaves it to the caller,
    except where it reads sizes."""
    with driver.gate(stream) as gate:
        numbers.work()
        array = numbers.array()
        nano.wait(nano.resolve(nano.CUDA, 0), nano.sync_event(array), other)
        copied = nano.copy(array, nano.resolve(nano.CUDA, 0), other)
        assert not driver.is_complete(nano.event(copied))
        gate.open()
        back = nano.copy(copied, nano.resolve(nano.CPU, 0), other)
        driver.call("cuStreamSynchronize", driver.handle(other))
    assert nano.values(back) == list(range(1, 1001))


def test_copy_does_not_wait_by_itself(numbers, stream, other):
    """So a caller that forgets the event reads the old contents."""
    with driver.gate(stream):
        numbers.work()
        back = nano.copy(numbers.array(), nano.resolve(nano.CPU, 0), other)
        driver.call("cuStreamSynchronize", driver.handle(other))
        assert nano.values(back) == [0] * 1000


def test_caller_waits_for_the_event_of_an_array(numbers, stream):
    numbers.work()
    array = numbers.array()
    nano.wait(nano.resolve(nano.CUDA, 0), nano.sync_event(array))
    assert driver.is_complete(numbers.event.value)


@pytest.mark.machines(*SIZES_CAN_BE_READ)
def test_sizes_are_read_after_the_event(words, stream, other):
    """Here nanoarrow makes its stream wait itself. The producer goes on when the
    consumer's wait is queued: a thread opens the gate as soon as a copy is asked for."""
    import threading

    with driver.gate(stream) as gate:
        words.work()
        array = words.array()
        opener = threading.Timer(0, gate.open)  # at any time: the result must not depend on it
        opener.start()
        with nano.View(array, other) as view:
            assert view.sizes == [0, 12, 10]
            back = c_device_array(view.copy(nano.resolve(nano.CPU, 0), other))
        opener.join()
    assert nano.values(back) == ["abc", "defghij"]


@pytest.mark.simulator
@pytest.mark.machines(*SIZES_CAN_BE_READ)
def test_wait_before_sizes_is_queued_on_the_stream(words, stream, other):
    words.work()
    array = words.array()
    with simulator.counting() as counted, nano.View(array, other):
        assert counted().calls["cuStreamWaitEvent"] == 1
        assert "cuEventSynchronize" not in counted().calls


def known_defect(works, reason):
    """An expected failure: if it works one day, the test fails and can go."""
    if works:
        pytest.fail(f"this works now: {reason}")
    pytest.xfail(reason)


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
def test_release_waits_for_the_work_on_the_memory(run_program):
    """nanoarrow allocates in stream order, so cuMemFree does not wait for the device,
    as the manual says. The caller must wait before it releases an array."""

    def program():
        import driver
        import nano
        import samples

        source = samples.SAMPLES["int32"].make()
        array = nano.copy(source, nano.resolve(nano.CUDA, 0), 2)
        with driver.current_primary_context(), driver.gate(2):
            back = nano.copy(array, nano.resolve(nano.CUDA, 0), 2)
            del array
        del back

    violations = run_program(program).report["violations"]
    known_defect(
        not violations,
        "nanoarrow 0.6.0 frees memory with cuMemFree that it allocated with cuMemAllocAsync, without waiting for its event",
    )


@pytest.mark.simulator
@pytest.mark.program
def test_memory_is_freed_on_a_thread_without_a_context(run_program):
    """nanoarrow makes none current before it frees, and a driver needs none."""

    def program():
        import driver
        import nano
        import samples

        array = nano.copy(samples.SAMPLES["int32"].make(), nano.resolve(nano.CUDA, 0), 2)
        nano.wait(nano.resolve(nano.CUDA, 0), nano.sync_event(array))
        assert driver.ask(driver.handle, "cuCtxGetCurrent") is None
        del array

    report = run_program(program).check().report
    assert report["live"]["device_bytes"] == [0]
    assert report["live"]["events"] == 0


class Stranger:
    """Hides an object that nanoarrow would recognise as its own."""

    def __init__(self, array):
        self._array = array

    def __arrow_c_device_array__(self, requested_schema=None):
        return self._array.__arrow_c_device_array__()


def test_re_export_keeps_the_event_and_the_memory(numbers):
    numbers.work()
    first = numbers.array()
    second = c_device_array(Stranger(first))
    assert second.device_type == DeviceType.CUDA
    assert second.array.buffers == first.array.buffers == (0, numbers.buffers[1].device_ctypes_pointer.value)
    assert nano.sync_event(second) == nano.sync_event(first) == ctypes.addressof(numbers.event)
    assert capsules.exported() == 1
    del first
    assert capsules.exported() == 1
    nano.wait(nano.resolve(nano.CUDA, 0), nano.sync_event(second))
    assert nano.values(to_host(second)) == list(range(1, 1001))
    del second
    assert capsules.exported() == 0


def to_host(array):
    with driver.stream() as stream:
        back = nano.copy(array, nano.resolve(nano.CPU, 0), stream)
        driver.call("cuStreamSynchronize", driver.handle(stream))
        return back


def test_array_is_released_once_whoever_holds_it(numbers):
    numbers.work()
    array = numbers.array()
    copies = [c_device_array(Stranger(array)) for _ in range(10)]
    views = [copy.array for copy in copies]
    del array, copies[::2]
    assert capsules.exported() == 1
    copies.clear()
    assert capsules.exported() == 1
    views.clear()
    assert capsules.exported() == 0
