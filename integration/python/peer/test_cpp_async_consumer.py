"""The asynchronous consumer of Arrow C++, with a producer that a test controls. Go must
work with this behaviour; a test that fails with a new version of PyArrow shows which
part of Go to review."""

import ctypes
import errno
import threading

import pyarrow as pa
import pytest

import abi
import cpp
import recorder

BATCHES = [pa.record_batch({"a": [i, None], "s": ["x" * i, None]}) for i in range(6)]
SCHEMA = BATCHES[0].schema.with_metadata({"k": "v"})
ALL = pa.Table.from_batches([b.replace_schema_metadata(SCHEMA.metadata) for b in BATCHES])


def test_consumer_takes_schema_batches_and_metadata():
    with cpp.Consumer() as consumer:
        producer = recorder.RecordingProducer(consumer.handler)
        assert producer.on_schema(SCHEMA) == 0
        assert producer.on_next_task(BATCHES[0], {b"n": b"0", b"bytes": b"\0\1"}) == 0
        assert producer.on_next_task(BATCHES[1]) == 0
        assert producer.on_next_task(BATCHES[2], {}) == 0
        assert producer.end() == 0
        producer.release()
        assert consumer.schema.equals(SCHEMA, check_metadata=True)
        assert consumer.device_type == abi.CPU
        taken = list(consumer)
        assert [metadata for _, metadata in taken] == [{b"n": b"0", b"bytes": b"\0\1"}, None, None]
        assert [batch.to_pydict() for batch, _ in taken] == [batch.to_pydict() for batch in BATCHES[:3]]
        assert consumer.next() is None, "the end stays the end"


@pytest.mark.parametrize("queue_size", [1, 5, 100])
def test_consumer_requests_its_queue_in_on_schema(queue_size):
    with cpp.Consumer(queue_size) as consumer:
        producer = recorder.RecordingProducer(consumer.handler)
        producer.on_schema(SCHEMA)
        assert producer.log.calls == [("request", queue_size)]
        producer.end()
        producer.release()


def test_consumer_without_a_queue_requests_nothing_which_is_an_error():
    """request(0): a producer answers with on_error."""
    with cpp.Consumer(0) as consumer:
        producer = recorder.RecordingProducer(consumer.handler)
        producer.on_schema(SCHEMA)
        assert producer.log.calls == [("request", 0)]
        producer.on_error(errno.EINVAL, "0 batches requested")
        producer.release()
        with pytest.raises(cpp.CppError, match="0 batches requested"):
            consumer.next()


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("released_first", [False, True])
def test_consumer_requests_one_more_before_it_extracts_each_task(released_first, threads):
    """On the thread that extracts. It does so after the producer released the
    handler too, so the struct of a producer lives until its last task is extracted.
    After that nothing is called any more."""
    with cpp.Consumer(len(BATCHES), threads) as consumer:
        producer = recorder.RecordingProducer(consumer.handler)
        producer.on_schema(SCHEMA)
        for batch in BATCHES:
            producer.on_next_task(batch)
        if released_first:
            producer.end()
            producer.release()
            released_after = len(producer.log.calls)
        for _ in BATCHES:
            consumer.next()
        if not released_first:
            producer.end()
            producer.release()
            released_after = len(producer.log.calls)
        assert consumer.next() is None
    calls, threads = producer.log.calls, producer.log.threads
    assert calls[0] == ("request", len(BATCHES))
    for i in range(len(BATCHES)):
        assert calls[1 + 2 * i : 3 + 2 * i] == [("request", 1), ("extract", i, True)]
        assert threads[1 + 2 * i] == threads[2 + 2 * i]
    assert len(calls) == 1 + 2 * len(BATCHES)
    assert released_after == (1 if released_first else len(calls))


@pytest.mark.parametrize("queue_size", [1, 5, 64])
def test_consumer_reads_33_ahead_when_it_is_slow(queue_size):
    """From the first next on a thread of its own extracts, and 33 batches wait for
    the consumer; one was taken. So it requests 33 more than its queue, and then
    stops: that is its back-pressure."""
    with cpp.Consumer(queue_size) as consumer:
        producer = recorder.RecordingProducer(consumer.handler)
        producer.on_schema(SCHEMA)
        sent = 0

        def send_what_is_requested():
            nonlocal sent
            while sent < producer.log.requested:
                producer.on_next_task(BATCHES[0])
                sent += 1

        send_what_is_requested()
        consumer.next()
        while len(producer.log.named("extract")) < 33:
            extracted = len(producer.log.named("extract"))
            send_what_is_requested()
            producer.log.wait_until(lambda calls: sent < producer.log.requested or len(producer.log.named("extract")) > extracted)
        assert producer.log.requested == queue_size + 33
        send_what_is_requested()
        producer.end()
        producer.release()


def test_consumer_extracts_nothing_before_it_is_asked():
    with cpp.Consumer(5) as consumer:
        producer = recorder.RecordingProducer(consumer.handler)
        producer.on_schema(SCHEMA)
        for batch in BATCHES[:5]:
            producer.on_next_task(batch)
        assert consumer.schema.names == ["a", "s"]
        producer.end()
        producer.release()
        assert producer.log.calls == [("request", 5)]


def test_consumer_takes_more_than_it_requested():
    with cpp.Consumer(1) as consumer:
        producer = recorder.RecordingProducer(consumer.handler)
        producer.on_schema(SCHEMA)
        assert [producer.on_next_task(batch) for batch in BATCHES] == [0] * len(BATCHES)
        producer.end()
        producer.release()
        assert consumer.read_all().equals(ALL)


@pytest.mark.parametrize("code", [errno.EIO, -7, 0])
def test_error_before_the_schema_has_code_and_message(code):
    with cpp.Consumer() as consumer:
        producer = recorder.RecordingProducer(consumer.handler)
        producer.on_error(code, "bad thing")
        producer.release()
        with pytest.raises(cpp.CppError, match="^Unknown error: bad thing$") as e:
            consumer.schema
        assert e.value.code == code
        assert producer.log.calls == []


def test_error_without_a_message_is_an_error():
    with cpp.Consumer() as consumer:
        producer = recorder.RecordingProducer(consumer.handler)
        producer.on_error(errno.EIO, None)
        producer.release()
        with pytest.raises(cpp.CppError, match="^Unknown error: $"):
            consumer.schema


def test_metadata_of_an_error_is_cut_at_its_first_zero_byte():
    """Which is in the count of the pairs: the rest of the metadata is lost."""
    with cpp.Consumer() as consumer:
        producer = recorder.RecordingProducer(consumer.handler)
        producer.on_error(errno.EIO, "bad thing", {b"key": b"value"})
        producer.release()
        with pytest.raises(cpp.CppError) as e:
            consumer.schema
        assert e.value.metadata == b"\1"


def test_error_overtakes_what_is_queued_and_that_is_lost():
    """No task is extracted, not with NULL either: a producer that relies on it
    leaks."""
    with cpp.Consumer() as consumer:
        producer = recorder.RecordingProducer(consumer.handler)
        producer.on_schema(SCHEMA)
        producer.on_next_task(BATCHES[0])
        producer.on_next_task(BATCHES[1])
        producer.on_error(errno.EIO, "bad thing")
        producer.release()
        with pytest.raises(cpp.CppError, match="bad thing"):
            consumer.next()
        assert consumer.next() is None
    assert producer.log.calls == [("request", 5)]


def test_failed_extract_waits_for_on_error():
    """The errno alone is not an error for it: a producer must call on_error too."""
    with cpp.Consumer() as consumer:
        producer = recorder.RecordingProducer(consumer.handler)
        producer.on_schema(SCHEMA)
        producer.on_next_task(BATCHES[0], fails=errno.EIO)
        raised = []

        def take():
            try:
                consumer.next()
            except cpp.CppError as e:
                raised.append((e.code, e.message))

        thread = threading.Thread(target=take)
        thread.start()
        producer.log.wait_until(lambda calls: ("extract", 0, True) in calls)
        producer.on_error(errno.ENODEV, "the device is gone")
        thread.join()
        assert raised == [(errno.ENODEV, "the device is gone")]
        producer.release()


def test_extract_that_gives_no_array_is_an_error_that_loses_what_is_queued():
    class Nothing:
        def _export_to_c_device(self, out):
            ctypes.memset(out, 0, ctypes.sizeof(abi.ArrowDeviceArray))

    with cpp.Consumer() as consumer:
        producer = recorder.RecordingProducer(consumer.handler)
        producer.on_schema(SCHEMA)
        producer.on_next_task(Nothing())
        producer.on_next_task(BATCHES[1])
        producer.end()
        producer.release()
        with pytest.raises(cpp.CppError, match="^Key error: Device type 0"):
            consumer.next()
        assert consumer.next() is None
        assert producer.log.named("extract") == [("extract", 0, True)]


def test_batch_that_is_not_of_the_schema_is_an_error():
    with cpp.Consumer() as consumer:
        producer = recorder.RecordingProducer(consumer.handler)
        producer.on_schema(SCHEMA)
        producer.on_next_task(pa.record_batch({"a": [1]}))
        producer.end()
        producer.release()
        with pytest.raises(cpp.CppError, match="Invalid: ArrowArray struct has 1 children, expected 2"):
            consumer.next()


def test_schema_that_is_none_is_refused():
    with cpp.Consumer() as consumer:
        producer = recorder.RecordingProducer(consumer.handler)
        assert producer.on_schema(pa.int32()) == errno.EINVAL
        producer.release()
        with pytest.raises(cpp.CppError, match="Invalid: Cannot import schema: ArrowSchema describes non-struct type int32"):
            consumer.schema
        assert producer.log.calls == [], "who refuses the schema requests nothing"


def test_device_of_a_producer_is_not_looked_at():
    with cpp.Consumer() as consumer:
        producer = recorder.RecordingProducer(consumer.handler, device_type=abi.CUDA)
        producer.on_schema(SCHEMA)
        producer.on_next_task(BATCHES[0])
        producer.end()
        producer.release()
        assert consumer.device_type == abi.CUDA
        assert consumer.next()[0].num_rows == 2


def test_release_without_a_word_leaves_the_consumer_waiting():
    """Its future has no value then, and no error: a producer that cannot begin must
    call on_error. cpp.Consumer notices by itself."""
    with cpp.Consumer() as consumer:
        recorder.RecordingProducer(consumer.handler).release()
        with pytest.raises(cpp.CppError, match="released without a schema"):
            consumer.schema


def test_dropped_consumer_does_not_cancel_and_loses_what_is_queued():
    with cpp.Consumer() as consumer:
        producer = recorder.RecordingProducer(consumer.handler)
        producer.on_schema(SCHEMA)
        producer.on_next_task(BATCHES[0])
        consumer.drop()
        assert producer.on_next_task(BATCHES[1]) == 0, "nobody tells the producer"
        assert producer.log.calls == [("request", 5)]
        producer.release()


def test_consumer_that_has_no_producer_is_closed():
    cpp.Consumer().close()
