"""Numba's streams: own work in order, other work at the same time, and the waits of the
default streams."""

import asyncio
import threading

import numpy as np
import pytest
from numba import cuda

import driver
import simulator
from helpers import pinned


def each_stream(test):
    return pytest.mark.parametrize("kind", ["own", "default", "legacy", "per_thread", "external"])(test)


@pytest.fixture
def stream(kind, request):
    """One that Numba makes, or knows by a name."""
    return {
        "own": cuda.stream,
        "default": cuda.default_stream,
        "legacy": cuda.legacy_default_stream,
        "per_thread": cuda.per_thread_default_stream,
        "external": lambda: request.getfixturevalue("apart"),
    }[kind]()


@each_stream
@pytest.mark.parametrize("host", ["pinned", "pageable"])
def test_copies_on_a_stream(stream, host):
    want = np.arange(10_000)
    source = pinned(want) if host == "pinned" else want.copy()
    target = pinned(want * 0) if host == "pinned" else want * 0
    on_device = cuda.to_device(source, stream=stream)
    other = cuda.device_array_like(source)
    other.copy_to_device(on_device, stream=stream)
    other.copy_to_host(target, stream=stream)
    stream.synchronize()
    np.testing.assert_array_equal(target, want)


@each_stream
def test_array_remembers_its_stream(stream):
    with stream.auto_synchronize():
        want = pinned(np.arange(100))
        on_device = cuda.to_device(want, stream=stream)
        assert on_device.stream is stream
        got = on_device.copy_to_host()
    np.testing.assert_array_equal(got, want)


@each_stream
def test_work_on_a_stream_is_done_in_order(stream):
    """A hundred copies into the same memory: the last one stays."""
    sources = [pinned(np.full(1000, i)) for i in range(100)]
    target = pinned(np.zeros(1000, "i8"))
    on_device = cuda.device_array_like(target)
    for source in sources:
        on_device.copy_to_device(source, stream=stream)
    on_device.copy_to_host(target, stream=stream)
    stream.synchronize()
    assert (target == 99).all()


@each_stream
def test_callbacks(stream):
    seen = []
    for i in range(20):
        stream.add_callback(lambda stream, status, arg: seen.append((stream, status, arg)), i)
    stream.synchronize()
    assert seen == [(stream, 0, i) for i in range(20)]


@each_stream
def test_callback_comes_after_the_work_before_it(stream):
    source, target = pinned(np.arange(1000)), pinned(np.zeros(1000, "i8"))
    on_device = cuda.to_device(source, stream=stream)
    on_device.copy_to_host(target, stream=stream)
    seen = []
    stream.add_callback(lambda *_: seen.append(target.copy()))
    stream.synchronize()
    np.testing.assert_array_equal(seen, [source])


@each_stream
def test_awaitable(stream):
    source, target = np.arange(1000), pinned(np.zeros(1000, "i8"))

    async def work():
        on_device = cuda.to_device(source, stream=stream)
        on_device.copy_to_host(target, stream=stream)
        return await stream.async_done()

    assert asyncio.run(work()) is stream
    np.testing.assert_array_equal(target, source)


def test_copy_is_not_done_while_its_stream_is_held(apart):
    """The call has returned, the work has not begun."""
    source, target = pinned(np.arange(1000)), pinned(np.zeros(1000, "i8"))
    on_device = cuda.device_array_like(source)
    with driver.gate(int(apart)) as gate:
        on_device.copy_to_device(source, stream=apart)
        on_device.copy_to_host(target, stream=apart)
        assert (target == 0).all()
        gate.open()
        apart.synchronize()
    np.testing.assert_array_equal(target, source)


def test_streams_do_not_wait_for_each_other(apart, apart2):
    source, target = pinned(np.arange(1000)), pinned(np.zeros(1000, "i8"))
    held, free = cuda.device_array_like(source), cuda.device_array_like(source)
    with driver.gate(int(apart)):
        held.copy_to_device(source, stream=apart)
        free.copy_to_device(source, stream=apart2)
        free.copy_to_host(target, stream=apart2)
        apart2.synchronize()
        np.testing.assert_array_equal(target, source)


def test_reading_on_another_stream_without_an_event_is_too_early(apart, apart2):
    """The mistake that an order by events prevents: here it shows, every time."""
    source, target = pinned(np.arange(1000)), pinned(np.zeros(1000, "i8"))
    on_device = cuda.to_device(np.full(1000, -1))
    with driver.gate(int(apart)):
        on_device.copy_to_device(source, stream=apart)
        on_device.copy_to_host(target, stream=apart2)
        apart2.synchronize()
        assert (target == -1).all()


@pytest.mark.parametrize("kind", ["legacy", "default"])
@pytest.mark.parametrize("host", ["pinned", "pageable"])
def test_legacy_stream_waits_for_other_streams(stream, host):
    """For those that are not CU_STREAM_NON_BLOCKING, without any event."""
    own = cuda.stream()
    source, target = pinned(np.arange(1000)), pinned(np.zeros(1000, "i8"))
    on_device = cuda.to_device(np.full(1000, -1))
    event = cuda.event()
    with driver.gate(own.handle.value) as gate:
        on_device.copy_to_device(source, stream=own)
        event.record(stream)
        assert not event.query()
        gate.open()
        if host == "pageable":
            target = on_device.copy_to_host()  # no stream: the copy that waits
        else:
            on_device.copy_to_host(target, stream=stream)
            stream.synchronize()
    np.testing.assert_array_equal(target, source)


def test_other_streams_wait_for_the_legacy_stream():
    own, legacy = cuda.stream(), cuda.legacy_default_stream()
    source, target = pinned(np.arange(1000)), pinned(np.zeros(1000, "i8"))
    on_device = cuda.to_device(np.full(1000, -1))
    event = cuda.event()
    with driver.gate(legacy.handle.value) as gate:
        on_device.copy_to_device(source, stream=legacy)
        on_device.copy_to_host(target, stream=own)
        event.record(own)
        assert not event.query()
        gate.open()
        own.synchronize()
    np.testing.assert_array_equal(target, source)


def test_non_blocking_stream_and_legacy_stream_do_not_wait(apart):
    legacy = cuda.legacy_default_stream()
    source, target = pinned(np.arange(1000)), pinned(np.zeros(1000, "i8"))
    on_device = cuda.to_device(np.full(1000, -1))
    with driver.gate(int(apart)):
        on_device.copy_to_device(source, stream=apart)
        on_device.copy_to_host(target, stream=legacy)
        legacy.synchronize()
        assert (target == -1).all()
    with driver.gate(legacy.handle.value):
        on_device.copy_to_host(target, stream=apart)
        apart.synchronize()
        np.testing.assert_array_equal(target, source)


def test_per_thread_streams_of_threads_do_not_wait_for_each_other():
    mine = cuda.per_thread_default_stream()
    source, target = pinned(np.arange(1000)), pinned(np.zeros(1000, "i8"))
    on_device = cuda.device_array_like(source)
    with driver.gate(mine.handle.value):

        def work():
            theirs = cuda.per_thread_default_stream()
            on_device.copy_to_device(source, stream=theirs)
            on_device.copy_to_host(target, stream=theirs)
            theirs.synchronize()

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        np.testing.assert_array_equal(target, source)


def test_context_waits_for_all_streams(apart):
    streams = [apart, cuda.stream(), cuda.stream(), cuda.per_thread_default_stream()]
    sources = [pinned(np.full(1000, i)) for i in range(4)]
    targets = [pinned(np.zeros(1000, "i8")) for _ in range(4)]
    device = [cuda.device_array_like(source) for source in sources]
    for stream, source, target, d in zip(streams, sources, targets, device):
        d.copy_to_device(source, stream=stream)
        d.copy_to_host(target, stream=stream)
    cuda.synchronize()
    assert [target[7] for target in targets] == [0, 1, 2, 3]


def test_stream_that_is_destroyed_finishes_its_work():
    source, target = pinned(np.arange(1000)), pinned(np.zeros(1000, "i8"))
    on_device = cuda.device_array_like(source)
    done = cuda.event()
    stream = cuda.stream()
    gate = driver.Gate(stream.handle.value)
    try:
        on_device.copy_to_device(source, stream=stream)
        on_device.copy_to_host(target, stream=stream)
        done.record(stream)
        del stream
        cuda.current_context().deallocations.clear()
        assert not done.query()
    finally:
        gate.open()
    done.synchronize()
    np.testing.assert_array_equal(target, source)


@pytest.mark.simulator
def test_paused_machine_does_nothing(apart):
    source, target = pinned(np.arange(1000)), pinned(np.zeros(1000, "i8"))
    on_device = cuda.device_array_like(source)
    event = cuda.event()
    with simulator.paused():
        on_device.copy_to_device(source, stream=apart)
        on_device.copy_to_host(target, stream=apart)
        event.record(apart)
        assert not event.query()
        assert (target == 0).all()
    event.synchronize()
    np.testing.assert_array_equal(target, source)


@pytest.mark.simulator
@pytest.mark.machines("random")
def test_pageable_source_that_changes_too_early_is_copied_wrong(apart):
    """A driver may read pageable memory late. This machine does, so that a program
    that forgets to wait gets the wrong numbers."""
    source = np.arange(1000)
    on_device = cuda.to_device(np.full(1000, -1))
    with driver.gate(int(apart)):
        on_device.copy_to_device(source, stream=apart)
        source[:] = 7
    apart.synchronize()
    assert (on_device.copy_to_host() == 7).all()


@pytest.mark.simulator
@pytest.mark.machines("random")
def test_pageable_target_is_not_there_before_the_stream_is_done(apart):
    target = np.zeros(1000, "i8")
    on_device = cuda.to_device(np.arange(1000))
    with driver.gate(int(apart)):
        on_device.copy_to_host(target, stream=apart)
        assert (target == 0).all()
    np.testing.assert_array_equal(target, np.arange(1000))


@pytest.mark.simulator
@pytest.mark.machines("in_order", "delayed")
def test_pageable_source_can_change_when_the_copy_has_returned(apart):
    """As drivers usually do it: through a buffer of their own."""
    source = np.arange(1000)
    on_device = cuda.to_device(np.full(1000, -1))
    with simulator.counting() as counted:
        on_device.copy_to_device(source, stream=apart)
        source[:] = 7
        apart.synchronize()
        assert counted().staged_bytes == 8000
    np.testing.assert_array_equal(on_device.copy_to_host(), np.arange(1000))


@pytest.mark.simulator
def test_pinned_source_that_changes_too_early_is_copied_wrong(apart):
    source = pinned(np.arange(1000))
    on_device = cuda.to_device(np.full(1000, -1))
    with simulator.counting() as counted:
        with driver.gate(int(apart)):
            on_device.copy_to_device(source, stream=apart)
            source[:] = 7
        apart.synchronize()
        assert counted().staged_bytes == 0
    assert (on_device.copy_to_host() == 7).all()


def test_names_of_streams(apart):
    assert int(cuda.default_stream()) == 0
    assert int(cuda.legacy_default_stream()) == 1
    assert int(cuda.per_thread_default_stream()) == 2
    assert "External CUDA stream" in repr(apart)


def test_flags_of_streams(apart):
    """Numba's own streams wait for the legacy stream, and it for them."""
    for stream, want in ((cuda.stream(), 0), (apart, driver.NON_BLOCKING)):
        flags = driver.ctypes.c_uint()
        driver.call("cuStreamGetFlags", driver.handle(int(stream)), driver.ctypes.byref(flags))
        assert flags.value == want
