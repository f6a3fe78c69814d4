"""Numba's events, and the rules of the driver's manual about them."""

import numpy as np
import pytest
from numba import cuda
from numba.cuda.cudadrv.driver import CudaAPIError

import driver
import simulator
from helpers import pinned


def test_event_that_was_never_recorded_is_complete(apart):
    event = cuda.event()
    assert event.query()
    event.synchronize()
    event.wait(apart)
    apart.synchronize()


def test_event_is_complete_when_what_was_before_it_is(apart):
    event = cuda.event()
    with driver.gate(int(apart)) as gate:
        event.record(apart)
        assert not event.query()
        gate.open()
        event.synchronize()
    assert event.query()


def test_event_does_not_wait_for_what_comes_after_it(apart):
    event = cuda.event()
    event.record(apart)
    with driver.gate(int(apart)):
        event.synchronize()
        assert event.query()


@pytest.mark.parametrize("host", ["pinned", "pageable"])
def test_stream_waits_for_an_event_of_another_stream(apart, apart2, host):
    """Producer and consumer on streams that share nothing but the event. The
    producer is held, and a consumer that does not wait would read before it."""
    source = pinned(np.arange(10_000)) if host == "pinned" else np.arange(10_000)
    target = source * 0 if host == "pageable" else pinned(np.zeros(10_000, "i8"))
    between, copied = cuda.to_device(np.full(10_000, -1)), cuda.device_array(10_000, "i8")
    written = cuda.event(timing=False)
    with driver.gate(int(apart)) as gate:
        between.copy_to_device(source, stream=apart)
        written.record(apart)
        written.wait(apart2)
        copied.copy_to_device(between, stream=apart2)
        gate.open()  # a copy to pageable memory waits until it is done
        copied.copy_to_host(target, stream=apart2)
        apart2.synchronize()
    np.testing.assert_array_equal(target, source)


def test_chain_of_streams(apart, apart2):
    """Ten streams, each copying the output of the one before it."""
    source, target = pinned(np.arange(1000)), pinned(np.zeros(1000, "i8"))
    arrays = [cuda.to_device(np.full(1000, -1)) for _ in range(11)]
    arrays[0].copy_to_device(source, stream=apart)
    done = cuda.event(timing=False)
    done.record(apart)
    for before, after in zip(arrays, arrays[1:]):
        stream = cuda.stream()
        done.wait(stream)
        after.copy_to_device(before, stream=stream)
        done = cuda.event(timing=False)
        done.record(stream)
    done.wait(apart2)
    arrays[-1].copy_to_host(target, stream=apart2)
    apart2.synchronize()
    np.testing.assert_array_equal(target, source)


def test_wait_is_for_the_latest_record_at_the_time_of_the_call(apart, apart2):
    """A record that comes later is none of its business."""
    event = cuda.event()
    event.record(apart)
    event.wait(apart2)
    with driver.gate(int(apart)):
        event.record(apart)
        apart2.synchronize()
        assert not event.query()
    assert event.query()


def test_wait_stays_when_the_event_is_recorded_again(apart, apart2):
    event = cuda.event()
    source, target = pinned(np.arange(1000)), pinned(np.zeros(1000, "i8"))
    on_device = cuda.to_device(np.full(1000, -1))
    with driver.stream() as third, driver.gate(int(apart)) as gate:
        on_device.copy_to_device(source, stream=apart)
        event.record(apart)
        event.wait(apart2)
        event.record(cuda.external_stream(third))  # complete at once
        on_device.copy_to_host(target, stream=apart2)
        event.synchronize()
        assert (target == 0).all()
        gate.open()
        apart2.synchronize()
    np.testing.assert_array_equal(target, source)


def test_event_can_be_destroyed_while_it_is_waited_for(apart, apart2):
    source, target = pinned(np.arange(1000)), pinned(np.zeros(1000, "i8"))
    on_device = cuda.to_device(np.full(1000, -1))
    event = cuda.event()
    with driver.gate(int(apart)) as gate:
        on_device.copy_to_device(source, stream=apart)
        event.record(apart)
        event.wait(apart2)
        on_device.copy_to_host(target, stream=apart2)
        del event
        cuda.current_context().deallocations.clear()
        assert (target == 0).all()
        gate.open()
        apart2.synchronize()
    np.testing.assert_array_equal(target, source)


@pytest.mark.parametrize("kind", ["default", "legacy"])
def test_legacy_stream_waits_for_an_event(apart, kind):
    stream = 0 if kind == "default" else cuda.legacy_default_stream()
    source = pinned(np.arange(1000))
    on_device = cuda.to_device(np.full(1000, -1))
    event = cuda.event()
    with driver.gate(int(apart)) as gate:
        on_device.copy_to_device(source, stream=apart)
        event.record(apart)
        event.wait(stream)
        gate.open()
        np.testing.assert_array_equal(on_device.copy_to_host(), source)


def test_event_on_the_default_stream():
    event = cuda.event()
    source = pinned(np.arange(1000))
    on_device = cuda.to_device(source, stream=cuda.default_stream())
    target = pinned(np.zeros(1000, "i8"))
    on_device.copy_to_host(target)
    event.record()
    event.synchronize()
    np.testing.assert_array_equal(target, source)


def test_elapsed_time(apart):
    events = [cuda.event() for _ in range(4)]
    on_device = cuda.device_array(100_000, "u1")
    for event in events:
        on_device.gpu_data.memset(1, stream=apart)
        event.record(apart)
    events[-1].synchronize()
    steps = [a.elapsed_time(b) for a, b in zip(events, events[1:])]
    assert min(steps) >= 0
    # Floats, and a driver measures in steps of half a microsecond.
    assert abs(cuda.event_elapsed_time(events[0], events[-1]) - sum(steps)) < 0.01
    assert events[0].elapsed_time(events[0]) == 0


@pytest.mark.simulator
@pytest.mark.machines("delayed")
def test_elapsed_time_of_delayed_work(apart):
    """Each operation lies for 0.4 ms on this machine."""
    first, last = cuda.event(), cuda.event()
    on_device = cuda.device_array(1000, "u1")
    first.record(apart)
    for _ in range(5):
        on_device.gpu_data.memset(1, stream=apart)
    last.record(apart)
    last.synchronize()
    assert first.elapsed_time(last) > 0.4


def test_elapsed_time_needs_events_that_take_it(apart):
    timed, bare = cuda.event(), cuda.event(timing=False)
    with pytest.raises(CudaAPIError, match="CUDA_ERROR_INVALID_HANDLE"):
        timed.elapsed_time(timed)  # not recorded
    timed.record(apart)
    bare.record(apart)
    apart.synchronize()
    with pytest.raises(CudaAPIError, match="CUDA_ERROR_INVALID_HANDLE"):
        timed.elapsed_time(bare)
    with driver.gate(int(apart)):
        later = cuda.event()
        later.record(apart)
        with pytest.raises(CudaAPIError, match="CUDA_ERROR_NOT_READY"):
            timed.elapsed_time(later)


@pytest.mark.simulator
def test_event_that_fires_when_told(apart, apart2):
    """And the stream does not go on before it."""
    event = cuda.event()
    source, target = pinned(np.arange(1000)), pinned(np.zeros(1000, "i8"))
    written, read = cuda.to_device(np.full(1000, -1)), cuda.to_device(np.full(1000, -1))
    with simulator.held(event.handle):
        event.record(apart)
        written.copy_to_device(source, stream=apart)
        event.wait(apart2)
        read.copy_to_host(target, stream=apart2)
        assert not event.query()
        assert (target == 0).all()
        simulator.fire(event.handle)
        cuda.synchronize()
        assert event.query()


@pytest.mark.simulator
def test_waits_are_counted(apart, apart2):
    """Calls that wait on the calling thread, and calls that only enqueue."""
    event = cuda.event()
    with simulator.counting() as counted:
        event.record(apart)
        event.wait(apart2)
        event.query()
        assert counted().synchronisations == 0
        assert (counted().calls["cuEventRecord"], counted().calls["cuStreamWaitEvent"]) == (1, 1)
        event.synchronize()
        apart2.synchronize()
        assert counted().synchronisations == 2
