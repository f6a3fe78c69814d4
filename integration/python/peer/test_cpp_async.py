"""Asynchronous streams of Arrow C++ with another side that a test controls: behaviour that Go must work with. A test that
fails with a new version of PyArrow shows which part of Go to review. What Go sees of Arrow C++ is in interop/test_async_*.py."""

import contextlib
import ctypes
import errno
import threading

import pyarrow as pa
import pytest

import abi
import cpp
import recorder
from asyncstreams import BATCHES, SCHEMA
from streams import reader

# The consumer of Arrow C++.


@contextlib.contextmanager
def consumer_of(schema=SCHEMA, queue_size=5, threads=1):
    """A consumer, and a producer that has sent the schema."""
    with cpp.Consumer(queue_size, threads) as consumer:
        producer = recorder.RecordingProducer(consumer.handler)
        if schema is not None:
            assert producer.on_schema(schema) == 0
        yield consumer, producer


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("released_first", [False, True])
def test_a_consumer_requests_one_more_before_it_extracts_each_task(released_first, threads):
    """On the thread that extracts. It does so after the producer released the handler too, so the struct of a producer lives
    until its last task is extracted. After that nothing is called any more."""
    with consumer_of(queue_size=len(BATCHES), threads=threads) as (consumer, producer):

        def end():
            producer.end()
            producer.release()
            return len(producer.log.calls)

        for batch in BATCHES:
            producer.on_next_task(batch)
        ended_after = end() if released_first else None
        for _ in BATCHES:
            consumer.next()
        ended_after = ended_after or end()
        assert consumer.next() is None
    calls, threads = producer.log.calls, producer.log.threads
    assert calls[0] == ("request", len(BATCHES))
    for i in range(len(BATCHES)):
        assert calls[1 + 2 * i : 3 + 2 * i] == [("request", 1), ("extract", i, True)]
        assert threads[1 + 2 * i] == threads[2 + 2 * i]
    assert len(calls) == 1 + 2 * len(BATCHES)
    assert ended_after == (1 if released_first else len(calls))


def test_metadata_of_an_error_is_cut_at_its_first_zero_byte():
    """Which is in the count of the pairs: the rest of the metadata is lost."""
    with consumer_of(schema=None) as (consumer, producer):
        producer.on_error(errno.EIO, "bad thing", {b"key": b"value"})
        producer.release()
        with pytest.raises(cpp.CppError, match="^Unknown error: bad thing$") as e:
            consumer.schema
        assert (e.value.code, e.value.metadata) == (errno.EIO, b"\1")


def test_a_failed_extraction_waits_for_on_error():
    """The errno alone is not an error for it: a producer must call on_error too."""
    with consumer_of() as (consumer, producer):
        producer.on_next_task(BATCHES[0], fails=errno.EIO)
        raised = []

        def take():
            with pytest.raises(cpp.CppError) as e:
                consumer.next()
            raised.append((e.value.code, e.value.message))

        thread = threading.Thread(target=take)
        thread.start()
        producer.log.wait_until(lambda calls: ("extract", 0, True) in calls)
        producer.on_error(errno.ENODEV, "the device is gone")
        thread.join()
        assert raised == [(errno.ENODEV, "the device is gone")]
        producer.release()


class Nothing:
    """In place of a batch, a struct without contents."""

    def _export_to_c_device(self, out):
        ctypes.memset(out, 0, ctypes.sizeof(abi.ArrowDeviceArray))


@pytest.mark.parametrize(
    "batch, text",
    [(Nothing(), "^Key error: Device type 0"), (pa.record_batch({"a": [1]}), "Invalid: ArrowArray struct has 1 children, expected 2")],
    ids=["no array", "another schema"],
)
def test_an_import_that_fails_loses_what_is_queued(batch, text):
    with consumer_of() as (consumer, producer):
        producer.on_next_task(batch)
        producer.on_next_task(BATCHES[1])
        producer.end()
        producer.release()
        with pytest.raises(cpp.CppError, match=text):
            consumer.next()
        assert consumer.next() is None
        assert producer.log.named("extract") == [("extract", 0, True)]


def test_a_release_without_a_word_leaves_the_consumer_waiting():
    """Its future has no value then, and no error: a producer that cannot begin must
    call on_error. cpp.Consumer notices by itself."""
    with consumer_of(schema=None) as (consumer, producer):
        producer.release()
        with pytest.raises(cpp.CppError, match="released without a schema"):
            consumer.schema


# The producer of Arrow C++.


def test_a_producer_ends_without_a_request_and_has_no_metadata():
    consumer = recorder.RecordingConsumer(requests=len(BATCHES))
    with cpp.Producer(reader(BATCHES), consumer.handler):
        consumer.wait_for_release()
        assert consumer.log.calls == [("on_schema",), *(("on_next_task", i) for i in range(6)), ("on_next_task", None), ("release",)]
        assert (consumer.metadata, consumer.batch_metadata) == (None, [None] * 6)
    for i, batch in enumerate(BATCHES):
        assert consumer.extract(i).to_pydict() == batch.to_pydict(), "a task is extracted after release too"


@pytest.mark.parametrize("inside", [False, True], ids=["later", "in on_schema"])
def test_a_cancel_is_reported_as_an_error(inside):
    """Against the specification: a successful cancel is none."""

    class Timid(recorder.RecordingConsumer):
        def answer(self, *call):
            if inside and call == ("on_schema",):
                self.cancel()
            return super().answer(*call)

    consumer = Timid()
    with cpp.Producer(reader(BATCHES), consumer.handler):
        consumer.log.wait_until(lambda calls: ("on_schema",) in calls)
        if not inside:
            consumer.cancel()
        consumer.wait_for_release()
    assert consumer.log.calls == [("on_schema",), ("on_error", errno.EINVAL, "Consumer requested cancellation"), ("release",)]


def test_a_request_for_nothing_is_ignored():
    consumer = recorder.RecordingConsumer()
    with cpp.Producer(reader(BATCHES), consumer.handler):
        consumer.log.wait_until(lambda calls: ("on_schema",) in calls)
        consumer.request(0)
        consumer.request(1)
        consumer.log.wait_until(lambda calls: ("on_next_task", 0) in calls)
        consumer.cancel()
        consumer.wait_for_release()
    assert [call[0] for call in consumer.log.calls] == ["on_schema", "on_next_task", "on_error", "release"]
    consumer.discard(0)


def test_a_negative_request_is_a_very_large_one():
    consumer = recorder.RecordingConsumer(requests=-1)
    with cpp.Producer(reader(BATCHES), consumer.handler):
        consumer.wait_for_release()
    assert len(consumer.log.named("on_next_task")) == len(BATCHES) + 1
    for i in range(len(BATCHES)):
        consumer.discard(i)


@pytest.mark.parametrize("call", [("on_schema",), ("on_next_task", 1)], ids=["schema", "task"])
def test_a_refusal_is_reported_as_an_error(call):
    """Against the specification, which has release only. A consumer that refuses a task must not extract it: it is freed when
    on_next_task returns."""
    consumer = recorder.RecordingConsumer(requests=5, answers={call: errno.EIO})
    with cpp.Producer(reader(BATCHES), consumer.handler):
        consumer.wait_for_release()
    assert consumer.log.calls[-3:] == [call, ("on_error", errno.EINVAL, f"Received error from handler::{call[0]} 1"), ("release",)]
    for i in range(len(consumer.log.named("on_next_task")) - 1):
        assert consumer.discard(i) == 0
