"""Asynchronous streams between Arrow C++ and Go, both ways: values, through queues of any size, and the owners of the memory.
Every type is in test_types.py, errors are in test_async_errors.py."""

import contextlib
import itertools
import threading

import pytest

import abi
import cpp
import golib
import gosource
import recorder
import transfer
from asyncstreams import BATCHES, ROWS, SCHEMA, cpp_to_go, go_to_cpp
from golib import GoError
from gostream import released
from streams import go_batches, on_threads, reader, rows

each_length = pytest.mark.parametrize("count", [0, 1, 5, 300])
each_queue = pytest.mark.parametrize("queue_size", [1, 4, 100])


# Queues.


@each_length
@each_queue
def test_streams_of_any_length_go_through_queues_of_any_size_to_go(count, queue_size):
    source = reader((BATCHES[i % 6] for i in range(count)), SCHEMA)
    with cpp_to_go(source, queue_size) as stream:
        assert rows(stream) == [ROWS[i % 6] for i in range(count)]
        assert stream.next() is None, "the end stays the end"


@each_length
@each_queue
def test_streams_of_any_length_go_through_queues_of_any_size_to_cpp(count, queue_size):
    with go_batches(BATCHES) as items, go_to_cpp((items[i % 6] for i in range(count)), queue_size, like=items[0]) as consumer:
        assert [batch.to_pylist() for batch, _ in consumer] == [ROWS[i % 6] for i in range(count)]
        assert consumer.next() is None


class Endless:
    """An iterator that counts its calls, and reports whether it was closed."""

    def __init__(self, item):
        self._item, self._asked, self._changed = item, 0, threading.Condition()
        self.closed = threading.Event()

    def __iter__(self):
        return self

    def __next__(self):
        with self._changed:
            self._asked += 1
            self._changed.notify_all()
        return self._item

    def wait_until_asked(self, count):
        with self._changed:
            assert self._changed.wait_for(lambda: self._asked >= count, recorder.PATIENCE), f"asked {self._asked} times"
            assert self._asked == count

    def close(self):
        self.closed.set()


@each_queue
def test_slow_use_in_go_holds_arrow_cpp_back(queue_size):
    """Arrow C++ asks its source for a batch when it has sent the last one, before the
    consumer requests the next."""
    source = Endless(BATCHES[1])
    with cpp_to_go(reader(source, SCHEMA), queue_size) as stream:
        for taken in range(5):
            source.wait_until_asked(queue_size + taken + 1)
            stream.next().release()


@each_queue
def test_slow_use_in_cpp_holds_go_back(queue_size):
    """Arrow C++ requests its queue, and 33 more than the test takes; Go asks its source
    for one more, to know whether there is one."""
    with go_batches(BATCHES) as items:
        source = Endless(items[1])
        with go_to_cpp(source, queue_size, like=items[1]) as consumer:
            source.wait_until_asked(queue_size + 1)
            assert consumer.next()[0].equals(BATCHES[1])
            source.wait_until_asked(queue_size + 33 + 1)


def slow(batches, ready):
    """The batches, of which the second is there when the test says so."""
    yield batches[0]
    ready.wait()
    yield batches[1]


def test_slow_source_in_cpp_is_waited_for():
    ready = threading.Event()
    with cpp_to_go(reader(slow(BATCHES, ready), SCHEMA)) as stream:
        with stream.next() as first:
            ready.set()
            assert [first.values(), *rows(stream)] == ROWS[:2]


def test_slow_source_in_go_is_waited_for():
    ready = threading.Event()
    with go_batches(BATCHES) as items, go_to_cpp(slow(items, ready), like=items[0]) as consumer:
        assert consumer.next()[0].equals(BATCHES[0])
        ready.set()
        assert [batch for batch, _ in consumer] == [BATCHES[1]]


# Metadata beside the batches.

ANNOTATED = BATCHES[0].schema.with_metadata({"k": "v", "bytes": b"\0\xff"})
METADATA = [{b"n": b"0"}, None, {b"bytes": b"\0\1\xff", b"": b""}, None, {b"n": b"4"}, {b"long": b"x" * 100_000}]


def test_metadata_of_the_schema_arrives_in_go():
    batches = [batch.replace_schema_metadata(ANNOTATED.metadata) for batch in BATCHES]
    with cpp_to_go(reader(batches)) as stream:
        assert stream.schema.equals(ANNOTATED, check_metadata=True)


@pytest.mark.parametrize("how", ["one schema", "a schema each"])
def test_metadata_of_batches_arrives_in_cpp(how):
    """Each keeps its own, even if batches have schemas of their own in place of the
    stream's."""
    with go_batches(BATCHES if how == "a schema each" else BATCHES[:1]) as items:
        items = [items[i % len(items)] for i in range(6)]
        with go_to_cpp(list(zip(items, METADATA)), like=items[0]) as consumer:
            assert [metadata for _, metadata in consumer] == METADATA


# Devices and memory.


def test_batches_of_a_device_pass_through_go():
    """Go has no backend for EXT_DEV, and does not interpret its memory."""
    there = cpp.copy_to_device(BATCHES[3], 7)
    with transfer.to_go(there, "pointer", full_validation=False) as item, go_to_cpp([item] * 2) as consumer:
        assert consumer.device_type == abi.EXT_DEV
        assert [batch.to_pylist() for batch, _ in consumer] == [ROWS[3]] * 2


def test_memory_of_a_device_is_the_producers():
    """An array that Go passes on has the addresses, and the device, that Arrow C++
    exported."""

    class Watching(recorder.RecordingConsumer):
        def places(self, index):
            with abi.structs() as s:
                assert self._extract(index, s.addresses[0]) == 0
                return s.array.device_type, s.array.device_id, abi.buffer_addresses(s.array.array)

    there = cpp.copy_to_device(BATCHES[3], 7)
    with abi.structs() as s:
        there._export_to_c_device(*s.addresses)
        want = abi.EXT_DEV, 7, [address for address in abi.buffer_addresses(s.array.array) if address]
    consumer = Watching(requests=1)
    with transfer.to_go(there, "pointer", full_validation=False) as item:
        gosource.export([item], consumer.handler, like=item)
        consumer.wait_for_release()
        device_type, device_id, addresses = consumer.places(0)
    assert (device_type, device_id, [address for address in addresses if address]) == want


def test_copies_are_made_for_the_consumer():
    """CopyTo of the host: other memory, the same rows."""
    with go_batches(BATCHES) as items, go_to_cpp(items, copy_to=(abi.CPU, -1)) as consumer:
        read = [batch for batch, _ in consumer]
        assert [batch.to_pylist() for batch in read] == ROWS
        for item, batch in zip(items, read):
            with pytest.raises(transfer.NotShared):
                transfer.same_memory(item, batch)


def test_batches_outlive_the_stream_and_its_source():
    with cpp_to_go(reader((batch for batch in BATCHES), SCHEMA)) as stream:
        with stream.next() as batch:
            stream.close()
            golib.ext.free_memory()
            assert batch.values() == ROWS[0]
    with go_batches(BATCHES) as items, go_to_cpp(items) as consumer:
        batch, _ = consumer.next()
    golib.ext.free_memory()
    assert batch.to_pylist() == ROWS[0]


# Early ends.


@each_queue
@pytest.mark.parametrize("taken", [0, 1, 5])
def test_close_of_a_stream_in_go_ends_the_source_in_cpp(taken, queue_size):
    with cpp_to_go(reader(Endless(BATCHES[1]), SCHEMA), queue_size) as stream:
        with released(itertools.islice(stream, taken)) as items:
            stream.cancel()
            with pytest.raises(GoError, match="already released"):
                stream.next()
            assert [item.values() for item in items] == [ROWS[1]] * taken
    assert cpp.stats()["sources"] == 0


@each_queue
@pytest.mark.parametrize("taken", [0, 1, 5])
def test_cancel_in_cpp_ends_the_source_in_go(taken, queue_size):
    with go_batches(BATCHES) as items:
        source = Endless(items[1])
        with go_to_cpp(source, queue_size, like=items[1]) as consumer:
            assert consumer.schema.equals(SCHEMA), "before it, there is nobody to cancel"
            for _ in range(taken):
                consumer.next()
            consumer.cancel()
            consumer.cancel()
            consumer.wait_for_release()
            while batch := consumer.next():
                assert batch[0].equals(BATCHES[1])
        assert source.closed.wait(recorder.PATIENCE)


def test_close_wakes_who_waits_for_a_batch():
    """On another thread, while the source has none to give."""
    ready, waiting = threading.Event(), threading.Event()

    def slow():
        waiting.set()
        ready.wait()
        yield BATCHES[0]

    errors = []

    def take():
        with pytest.raises(GoError, match="already released") as e:
            stream.next()
        errors.append(e.value)

    with cpp_to_go(reader(slow(), SCHEMA)) as stream:
        thread = threading.Thread(target=take)
        thread.start()
        waiting.wait()
        closing = threading.Thread(target=stream.cancel)
        closing.start()
        thread.join()
        ready.set()
        closing.join()
    assert len(errors) == 1


# Many at once.


def test_many_streams_at_once_leave_nothing():
    """Each way, and some of them left early."""

    def to_go(early):
        with cpp_to_go(reader(BATCHES), queue_size=1 + early) as stream:
            with released(itertools.islice(stream, 3 if early else None)) as items:
                return [item.values() for item in items]

    def to_cpp(early):
        with go_to_cpp(items, 1 + early) as consumer:
            return [batch.to_pylist() for batch, _ in itertools.islice(consumer, 3 if early else None)]

    def through_go(early):
        # The consumer ends first: an error, as of a stream that is closed, overtakes
        # the tasks queued in it.
        with cpp_to_go(reader(BATCHES)) as stream, cpp.Consumer(1 + early) as back:
            stream.forward(back.handler)
            return [batch.to_pylist() for batch, _ in itertools.islice(back, 3 if early else None)]

    def work(number):
        for i in range(26):
            early = (i + number) % 3 == 0
            assert (to_go, to_cpp, through_go)[i % 3](early) == ROWS[: 3 if early else None]

    with go_batches(BATCHES) as items:
        on_threads(8, work)


def test_many_streams_are_open_at_once():
    """200 of them, which wait for one another's end."""
    with contextlib.ExitStack() as stack:
        items = stack.enter_context(go_batches(BATCHES))
        streams = [stack.enter_context(cpp_to_go(reader(BATCHES), queue_size=1)) for _ in range(100)]
        consumers = [stack.enter_context(go_to_cpp(items, 1)) for _ in range(100)]
        for want in ROWS:
            for stream in streams:
                with stream.next() as batch:
                    assert batch.values() == want
            for consumer in consumers:
                assert consumer.next()[0].to_pylist() == want
        assert [end.next() for end in streams + consumers] == [None] * 200
