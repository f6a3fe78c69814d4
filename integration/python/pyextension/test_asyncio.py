"""Calls that asyncio waits for."""

import asyncio
import gc
import os
import sys
import threading
import time

import pyarrow as pa
import pytest

import arrowdevice
from streams import on_threads

PATIENCE = 30  # seconds within which an interrupted call returns; it takes milliseconds, and its function a minute


async def numbers(reader):
    return [batch["n"].to_pyarrow().to_pylist() async for batch in reader]


@pytest.mark.parametrize("delay", [0, 5])
def test_async_for(ext, delay):
    for _ in range(2):  # each run has an event loop of its own
        assert asyncio.run(numbers(ext.counters(2, 3, delay))) == [[0, 1], [2, 3], [4, 5]]


def test_other_tasks_run_meanwhile(ext):
    async def main():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.002)
                ticks += 1

        ticking = asyncio.create_task(tick())
        await numbers(ext.counters(1, 5, 20))
        ticking.cancel()
        return ticks

    assert asyncio.run(main()) >= 5


def test_first_item_of_a_source_is_made_elsewhere(ext):
    """It may take long, and the event loop must not wait for it."""
    threads = []

    def generate():
        threads.append(threading.get_ident())
        yield pa.record_batch({"a": [1, 2]})

    assert asyncio.run(ext.count.aio(generate())) == 2
    assert threads and threading.get_ident() not in threads
    with pytest.raises(TypeError, match=r"source\[0\]: int is no record batch"):
        asyncio.run(ext.count.aio([1]))


def test_cancelled_while_the_first_item_is_made(ext):
    """The source ends after its item."""
    begun, go_on, closed = threading.Event(), threading.Event(), threading.Event()

    def generate():
        try:
            begun.set()
            go_on.wait(60)
            yield pa.record_batch({"a": [1, 2]})
        finally:
            closed.set()

    async def main():
        task = asyncio.create_task(ext.count.aio(generate()))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not closed.is_set()
        go_on.set()

    asyncio.run(main())
    assert closed.wait(PATIENCE)


def test_readers_together(ext):
    async def main():
        return await asyncio.gather(*(numbers(ext.counters(2, 5, i)) for i in range(20)))

    assert asyncio.run(main()) == [[[2 * i, 2 * i + 1] for i in range(5)]] * 20


def test_functions(ext):
    async def main():
        assert await ext.add.aio(1, b=2) == 3
        assert await asyncio.gather(*(ext.sleep.aio(20) for _ in range(50))) == ["slept"] * 50
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'a'"):
            await ext.add.aio()
        with pytest.raises(TypeError, match="add: argument a: int is wanted, not str"):
            await ext.add.aio("x")
        with pytest.raises(ValueError, match="invalid: a value"):
            await ext.fail.aio("value")
        with pytest.raises(arrowdevice.Panic):
            await ext.panics.aio()
        batch = pa.record_batch({"a": [1, 2]})
        assert await ext.count.aio(batch for _ in range(3)) == 6

    asyncio.run(main())


def test_cancelled_task_cancels_the_call(ext):
    async def main():
        begun = time.monotonic()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(ext.sleep.aio(60_000), 0.02)
        task = asyncio.create_task(ext.sleep.aio(60_000))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - begun < PATIENCE

    asyncio.run(main())


def test_task_that_is_cancelled_before_it_starts(ext):
    async def main():
        task = asyncio.create_task(ext.sleep.aio(60_000))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_cancelled_reads_lose_nothing(ext):
    async def main():
        reader, got = ext.counters(1, 20, 7), []
        while True:
            try:
                batch = await asyncio.wait_for(reader.__anext__(), 0.003)
            except asyncio.TimeoutError:
                continue
            except StopAsyncIteration:
                return got
            got += batch["n"].to_pyarrow().to_pylist()

    assert asyncio.run(main()) == list(range(20))


def test_cancel_after_the_batch_has_arrived(ext):
    """The reply is ready, and the task is cancelled before it takes it."""

    async def main():
        reader, got, cancelled = ext.counters(1, 1000, 2), [], 0
        while cancelled < 10:
            task = asyncio.create_task(reader.__anext__())
            await asyncio.sleep(0)  # it has begun
            deadline = time.monotonic() + PATIENCE
            while ext._library.ask(".stats")["calls"]:
                assert time.monotonic() < deadline, "it does not end"
                time.sleep(0.001)
            if not task.cancel():  # it has ended: this thread was late
                got += task.result()["n"].to_pyarrow().to_pylist()
                continue
            with pytest.raises(asyncio.CancelledError):
                await task
            cancelled += 1
            got += (await reader.__anext__())["n"].to_pyarrow().to_pylist()
        reader.close()
        return got

    got = asyncio.run(main())
    assert got == list(range(len(got)))


def test_reads_of_one_reader_in_many_tasks(ext):
    """Each batch goes to one of them."""

    async def main():
        reader = ext.counters(1, 50, 0)
        return sorted(sum(sum(await asyncio.gather(*(numbers(reader) for _ in range(7))), []), []))

    assert asyncio.run(main()) == list(range(50))


def test_reads_of_one_reader_in_many_threads(ext):
    reader, got = ext.counters(1, 200), []

    def work(_):
        for batch in reader:
            got.append(batch["n"].to_pyarrow()[0].as_py())

    on_threads(4, work)
    assert sorted(got) == list(range(200))


def test_event_loops_in_many_threads(ext):
    results = []
    on_threads(8, lambda _: results.append(asyncio.run(numbers(ext.counters(1, 20, 1)))))
    assert results == [[[i] for i in range(20)]] * 8


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_event_loop_that_ends_under_a_call(ext):
    """The call is cancelled with its coroutine; one that ends after the loop disturbs nothing."""
    loop = asyncio.new_event_loop()
    tasks = [loop.create_task(ext.sleep.aio(milliseconds)) for milliseconds in (60_000, 50)]
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    deadline = time.monotonic() + PATIENCE
    while ext._library.ask(".stats")["calls"] > 1 and time.monotonic() < deadline:  # until the short one has told the loop
        time.sleep(0.01)
    for task in tasks:
        task.get_coro().close()
        task._log_destroy_pending = False


def test_calls_that_are_dropped(ext):
    """Of an event loop that was closed, without a word to its tasks."""

    def run():
        loop = asyncio.new_event_loop()
        task = loop.create_task(ext.sleep.aio(60_000))
        task._log_destroy_pending = False
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()

    run()
    gc.collect()


def test_many_calls_end_at_once(ext):
    """While the thread of the event loop is busy. Half of them are cancelled then."""

    async def main():
        tasks = [asyncio.create_task(ext.sleep.aio(50)) for _ in range(800)]
        await asyncio.sleep(0)  # they have begun
        threads, interval = len(os.listdir("/proc/self/task")), sys.getswitchinterval()
        sys.setswitchinterval(60)
        try:  # they end, and this thread keeps Python's lock
            deadline = time.monotonic() + 0.5
            while time.monotonic() < deadline:
                pass
            assert len(os.listdir("/proc/self/task")) < threads + 100, "each of them keeps a thread"
        finally:
            sys.setswitchinterval(interval)
        deadline = time.monotonic() + PATIENCE
        while ext._library.ask(".stats")["calls"] > 0:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        # On a busy machine a call may end before its task waits for it, which is done then.
        cancelled = {i for i in range(0, len(tasks), 2) if tasks[i].cancel()}
        assert cancelled
        results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
        for i, result in enumerate(results):
            assert isinstance(result, asyncio.CancelledError) if i in cancelled else result == "slept", i

    asyncio.run(main())


def test_exception_of_a_source(ext):
    def generate():
        yield pa.record_batch({"a": [1]})
        raise LookupError("mine")

    async def main():
        with pytest.raises(LookupError, match="mine"):
            await ext.count.aio(generate())
        with pytest.raises(LookupError, match="mine"):
            async for _ in ext.echo_reader(generate()):
                pass

    asyncio.run(main())
