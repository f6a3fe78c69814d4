"""Many Python threads on one device."""

import threading

import numpy as np
import pytest
from numba import cuda

import driver
from helpers import on_threads


def test_copies():
    def work(i):
        for round in range(20):
            want = np.arange(1000) * (i + 1) + round
            np.testing.assert_array_equal(cuda.to_device(want).copy_to_host(), want)

    on_threads(8, work)


@pytest.mark.parametrize("kind", ["own", "per_thread"])
def test_copies_on_streams(kind):
    def work(i):
        stream = cuda.stream() if kind == "own" else cuda.per_thread_default_stream()
        source, target = cuda.pinned_array(1000, "i8"), cuda.pinned_array(1000, "i8")
        first, second = cuda.device_array(1000, "i8"), cuda.device_array(1000, "i8")
        for round in range(20):
            source[:] = np.arange(1000) * (i + 1) + round
            first.copy_to_device(source, stream=stream)
            second.copy_to_device(first, stream=stream)
            second.copy_to_host(target, stream=stream)
            stream.synchronize()
            np.testing.assert_array_equal(target, source)

    on_threads(8, work)


def test_threads_hand_on_by_events():
    """A ring: each thread copies, on its stream, the output of the one before it."""
    count, rounds = 4, 15
    arrays = [cuda.to_device(np.zeros(1000, "i8")) for _ in range(count + 1)]
    source = np.arange(1000)
    turns = [threading.Semaphore(0) for _ in range(count)]
    last = cuda.event(timing=False)

    def work(i):
        with driver.stream() as handle:
            stream = cuda.external_stream(handle)
            for round in range(rounds):
                if i > 0:
                    turns[i].acquire()
                elif round > 0:
                    turns[0].acquire()
                last.wait(stream)
                if i == 0:
                    arrays[0].copy_to_device(source, stream=stream)
                arrays[i + 1].copy_to_device(arrays[i], stream=stream)
                last.record(stream)
                if i < count - 1 or round < rounds - 1:
                    turns[(i + 1) % count].release()

    on_threads(count, work)
    np.testing.assert_array_equal(arrays[-1].copy_to_host(), source)


def test_one_stream_is_shared():
    """Work queued by many threads is all done, in order."""
    stream = cuda.stream()
    arrays = [cuda.device_array(100, "u1") for _ in range(8)]
    targets = [cuda.pinned_array(100, "u1") for _ in range(8)]

    def work(i):
        for value in range(50):
            arrays[i].gpu_data.memset(value + i, stream=stream)
        arrays[i].copy_to_host(targets[i], stream=stream)

    on_threads(8, work)
    stream.synchronize()
    assert [set(target.tolist()) for target in targets] == [{49 + i} for i in range(8)]


def test_allocations_and_frees():
    def work(i):
        for round in range(30):
            array = cuda.to_device(np.full(10 + i * 37 + round, i, "u1"))
            assert (array.copy_to_host() == i).all()
            event = cuda.event()
            event.record()
            event.synchronize()
            cuda.stream().synchronize()

    on_threads(8, work)


def test_memory_of_a_thread_that_has_ended():
    kept = []
    on_threads(4, lambda i: kept.append(cuda.to_device(np.full(100, 7))))
    assert all((array.copy_to_host() == 7).all() for array in kept)
