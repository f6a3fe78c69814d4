"""The asynchronous producer of Arrow C++, with a consumer that a test controls. Go must
work with this behaviour; a test that fails with a new version of PyArrow shows which
part of Go to review."""

import errno

import pyarrow as pa
import pytest

import abi
import cpp
import recorder

BATCHES = [pa.record_batch({"a": [i, None], "s": ["x" * i, None]}) for i in range(6)]
SCHEMA = BATCHES[0].schema.with_metadata({"k": "v"})


def source(batches=BATCHES):
    return pa.RecordBatchReader.from_batches(SCHEMA, [b.replace_schema_metadata(SCHEMA.metadata) for b in batches])


def test_producer_calls_in_order():
    """The end comes without a request for it."""
    consumer = recorder.RecordingConsumer(requests=len(BATCHES))
    with cpp.Producer(source(), consumer.handler) as producer:
        consumer.wait_for_release()
        assert consumer.log.calls == [("on_schema",), *(("on_next_task", i) for i in range(6)), ("on_next_task", None), ("release",)]
        assert consumer.schema.equals(SCHEMA, check_metadata=True)
        assert consumer.metadata is None
        assert consumer.batch_metadata == [None] * 6
        producer.wait()
    for i, batch in enumerate(BATCHES):
        assert consumer.extract(i).to_pydict() == batch.to_pydict(), "a task is extracted after release too"


def test_producer_sends_what_is_requested():
    consumer = recorder.RecordingConsumer()
    with cpp.Producer(source(), consumer.handler):
        for i in range(len(BATCHES)):
            consumer.log.wait_until(lambda calls: len(calls) == i + 1)
            consumer.request(1)
        consumer.wait_for_release()
        for i in range(len(BATCHES)):
            assert consumer.discard(i) == 0


def test_producer_takes_requests_inside_its_calls():
    class Greedy(recorder.RecordingConsumer):
        def answer(self, *call):
            if call != ("on_next_task", None):
                self.request(1)
            return super().answer(*call)

    consumer = Greedy()
    with cpp.Producer(source(), consumer.handler):
        consumer.wait_for_release()
    assert consumer.log.calls[-2:] == [("on_next_task", None), ("release",)]
    for i in range(len(BATCHES)):
        consumer.discard(i)


@pytest.mark.parametrize("inside", [False, True])
def test_cancel_of_a_producer_is_reported_as_an_error(inside):
    """Against the specification: a successful cancel is none."""

    class Timid(recorder.RecordingConsumer):
        def answer(self, *call):
            if inside and call == ("on_schema",):
                self.cancel()
            return super().answer(*call)

    consumer = Timid()
    with cpp.Producer(source(), consumer.handler) as producer:
        consumer.log.wait_until(lambda calls: ("on_schema",) in calls)
        if not inside:
            consumer.cancel()
        consumer.wait_for_release()
        with pytest.raises(cpp.CppError, match="Cancelled: Consumer requested cancellation"):
            producer.wait()
    assert consumer.log.calls == [("on_schema",), ("on_error", errno.EINVAL, "Consumer requested cancellation"), ("release",)]


def test_producer_ignores_a_request_for_nothing():
    consumer = recorder.RecordingConsumer()
    with cpp.Producer(source(), consumer.handler):
        consumer.log.wait_until(lambda calls: ("on_schema",) in calls)
        consumer.request(0)
        consumer.request(1)
        consumer.log.wait_until(lambda calls: ("on_next_task", 0) in calls)
        consumer.cancel()
        consumer.wait_for_release()
    assert [call[0] for call in consumer.log.calls] == ["on_schema", "on_next_task", "on_error", "release"]
    consumer.discard(0)


def test_producer_takes_a_negative_request_for_a_very_large_one():
    consumer = recorder.RecordingConsumer()
    with cpp.Producer(source(), consumer.handler):
        consumer.log.wait_until(lambda calls: ("on_schema",) in calls)
        consumer.request(-1)
        consumer.wait_for_release()
    assert len(consumer.log.named("on_next_task")) == len(BATCHES) + 1
    for i in range(len(BATCHES)):
        consumer.discard(i)


def test_refused_schema_is_reported_as_an_error():
    """Against the specification, which has release only."""
    consumer = recorder.RecordingConsumer(requests=5, answers={("on_schema",): errno.EIO})
    with cpp.Producer(source(), consumer.handler):
        consumer.wait_for_release()
    assert consumer.log.calls == [("on_schema",), ("on_error", errno.EINVAL, "Received error from handler::on_schema 1"), ("release",)]


def test_refused_task_is_reported_as_an_error_and_is_the_producers_again():
    """Against the specification too. A consumer that refuses a task must not extract
    it: it is freed when on_next_task returns."""
    consumer = recorder.RecordingConsumer(requests=5, answers={("on_next_task", 1): errno.EIO})
    with cpp.Producer(source(), consumer.handler):
        consumer.wait_for_release()
    message = "Received error from handler::on_next_task 1"
    assert consumer.log.calls[-2:] == [("on_error", errno.EINVAL, message), ("release",)]
    assert consumer.discard(0) == 0


@pytest.mark.parametrize("status", ["IOError", "NotImplemented", "Out of memory", "Cancelled"])
def test_failure_of_a_source_has_its_message_and_no_code_of_its_own(status):
    consumer = recorder.RecordingConsumer(requests=5)
    with cpp.Producer(source(), consumer.handler, fails_after=2, status=status, message="disk gone") as producer:
        consumer.wait_for_release()
        with pytest.raises(cpp.CppError, match="disk gone") as e:
            producer.wait()
        assert e.value.status == status
    assert consumer.log.calls[-2:] == [("on_error", errno.EINVAL, "disk gone"), ("release",)]
    assert consumer.error_metadata is None
    consumer.discard(0)
    consumer.discard(1)


def test_failure_of_a_source_does_not_wait_for_a_request():
    consumer = recorder.RecordingConsumer()
    with cpp.Producer(source(), consumer.handler, fails_after=0, message="nothing there"):
        consumer.wait_for_release()
    assert consumer.log.calls == [("on_schema",), ("on_error", errno.EINVAL, "nothing there"), ("release",)]


def test_producer_says_where_its_batches_are():
    consumer = recorder.RecordingConsumer(requests=1)
    with cpp.Producer(source(BATCHES[:1]), consumer.handler, device_type=abi.EXT_DEV, device_id=3):
        consumer.log.wait_until(lambda calls: ("on_schema",) in calls)
        consumer.wait_for_release()
        there = consumer.extract(0)
    assert not there.is_cpu
    assert there.copy_to(pa.default_cpu_memory_manager()).to_pydict() == BATCHES[0].to_pydict()
