"""cuda-core's streams and events."""

import numpy as np
import pytest
from cuda.core import LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, EventOptions, Stream, StreamOptions

import cudacore
import driver


@pytest.fixture
def device(machine):
    return cudacore.use_device(0)


@pytest.fixture
def stream(device):
    with cudacore.stream(device) as made:
        yield made


@pytest.fixture
def other(device):
    with cudacore.stream(device) as made:
        yield made


@pytest.mark.parametrize("of", ["event", "stream"])
def test_stream_waits_for_another(device, stream, other, of):
    """Without the wait, the copy on the second stream is done before the first has
    filled the memory."""
    target, got = cudacore.pinned(np.zeros(1000, "u1"))
    with cudacore.closing(device.allocate(1000, stream=stream), stream) as buffer:
        with driver.gate(int(stream.handle)) as gate:
            buffer.fill(7, stream=stream)
            other.wait(stream.record() if of == "event" else stream)
            buffer.copy_to(target, stream=other)
            done = other.record()
            cudacore.stays_pending(done)
            assert (got == 0).all()
            gate.open()
            done.sync()
        assert (got == 7).all()


def test_event_is_done_after_the_work_before_it(stream):
    with driver.gate(int(stream.handle)) as gate:
        before = stream.record()
        cudacore.stays_pending(before)
        gate.open()
        before.sync()
        assert before.is_done


def test_recorded_again_means_the_latest(stream):
    event = stream.record()
    event.sync()
    with driver.gate(int(stream.handle)):
        assert stream.record(event) is event
        assert not event.is_done


def test_elapsed_time(stream):
    timed = EventOptions(timing_enabled=True)
    first, last = stream.record(options=timed), stream.record(options=timed)
    stream.sync()
    assert first.is_timing_enabled and 0 <= last - first < 10000
    with pytest.raises(RuntimeError):
        stream.record() - first


def test_what_streams_say_of_themselves(device, stream):
    assert stream.is_nonblocking and stream.priority == 0
    assert stream.device == device and stream.context == device.context
    urgent = device.create_stream(options=StreamOptions(nonblocking=False, priority=-1))
    assert not urgent.is_nonblocking and urgent.priority == -1
    urgent.close()


def test_stream_of_another_library(device):
    with driver.stream() as handle:
        taken = Stream.from_handle(handle)
        with driver.gate(handle) as gate:
            event = taken.record()
            cudacore.stays_pending(event)
            gate.open()
            event.sync()
        assert taken.device == device


@pytest.mark.parametrize("default", [LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM])
def test_default_streams(device, default):
    target, got = cudacore.pinned(np.zeros(1000, "u1"))
    with cudacore.closing(device.allocate(1000, stream=default), default) as buffer:
        buffer.fill(7, stream=default)
        buffer.copy_to(target, stream=default)
        default.sync()
    assert (got == 7).all()
    default.sync()


@pytest.mark.two_devices
def test_streams_belong_to_the_device_that_was_current(device, stream):
    second = cudacore.use_device(1)
    with cudacore.stream(second) as there:
        assert there.device == second and stream.device == device
        with cudacore.closing(second.allocate(1000, stream=there), there) as buffer:
            buffer.fill(7, stream=there)
            stream.wait(there)
            stream.sync()
    cudacore.use_device(0)
