"""Each implementation exports each schema and each batch of each file; each compares it to JSON."""

import json

import pytest

import abi
from files import FILES
from implementations import IMPLEMENTATIONS, Difference

def obstacle(producer, consumer, file):
    """Why the two cannot exchange a file, or None."""
    return producer.cannot_export(file) or consumer.cannot_compare(file, producer)


@pytest.fixture
def pair(request):
    """A producer and a consumer, which release what they exchange."""
    producer, consumer = request.param
    before = producer.allocated(), consumer.allocated()
    yield producer, consumer
    assert (producer.allocated(), consumer.allocated()) == before, "something is not released"


def pairs(accept=lambda producer, consumer: True):
    chosen = [(p, c) for p in IMPLEMENTATIONS for c in IMPLEMENTATIONS if c.imports and accept(p, c)]
    rows = [pytest.param((p, c), id=f"{p.name}-to-{c.name}") for p, c in chosen]
    return pytest.mark.parametrize("pair", rows, indirect=True)


def with_arrow_go(producer, consumer):
    """Each implementation in both roles, with arrow-go's own library in the other one."""
    return "arrow-go" in (producer.name, consumer.name)


def files(accept=lambda file: True):
    return pytest.mark.parametrize("file", list(filter(accept, FILES)), ids=lambda f: f.name)


def file_named(name):
    return next(file for file in FILES if file.name == name)


def send_schema(producer, consumer, sent, path):
    schema = abi.ArrowSchema()
    producer.export_schema(sent, schema)
    try:
        consumer.compare_schema(path, schema)
        assert not schema.release, "the consumer did not take the schema"
    finally:
        abi.release(schema)


def send_batch(producer, consumer, sent, path, index):
    """Compares a batch of the file at sent to the same batch of the one at path."""
    array = abi.ArrowArray()
    producer.export_batch(sent, index, array)
    try:
        consumer.compare_batch(path, index, array)
        assert not array.release, "the consumer did not take the batch"
    finally:
        abi.release(array)


def exchange(producer, consumer, file, path):
    send_schema(producer, consumer, path, path)
    for index in range(len(file.counts)):
        send_batch(producer, consumer, path, path, index)


@pairs()
@files()
def test_the_consumer_finds_what_json_has(pair, file, written, over_gpu):
    reason = obstacle(*pair, file)
    if reason:
        # A library that makes the same mistake on both sides does not notice.
        if pair[0] is not pair[1]:
            with pytest.raises(Difference):
                exchange(*pair, file, written(file))
        pytest.skip(reason)
    exchange(*pair, file, written(file))
    copied = over_gpu()
    if copied and any(file.counts) and file.types() != {"null"}:
        assert [n > 0 for n in copied] == [any(side.uses_gpu for side in pair)] * 2


@pairs(with_arrow_go)
@files(lambda file: 0 < sum(file.counts) < 500)
def test_the_consumer_notices_other_values(pair, file, written):
    if obstacle(*pair, file):
        pytest.skip(obstacle(*pair, file))
    index = file.counts.index(max(file.counts))
    columns = file.content()["batches"][index]["columns"]
    tried = 0
    for i, column in enumerate(columns):
        if file.content(changed=i)["batches"][index]["columns"][i] == column:
            continue  # a column of nulls, or an empty one, has no other values
        tried += 1
        with pytest.raises(Difference, match="Import"):
            send_batch(*pair, written(file, i), written(file), index)
    assert tried


CHANGES = {
    "name": lambda schema: schema["fields"][0].update(name="another"),
    "nullability": lambda schema: schema["fields"][1].update(nullable=False),
    "type": lambda schema: schema["fields"][0].update(type={"name": "binary"}),
    "name of a child": lambda schema: schema["fields"][2]["children"][0].update(name="another"),
    "type of a child": lambda schema: schema["fields"][1]["children"][0]["type"].update(isSigned=False),
    "metadata": lambda schema: schema["metadata"][0].update(value="another"),
    "metadata of a field": lambda schema: schema["fields"][0]["metadata"][0].update(value="another"),
    "metadata of an item": lambda schema: schema["fields"][1]["children"][0]["metadata"][0].update(value="another"),
    "one field less": lambda schema: schema["fields"].pop(),
}


@pairs(with_arrow_go)
@pytest.mark.parametrize("file", [file_named("custom_metadata")], ids=lambda f: f.name)
@pytest.mark.parametrize("change", CHANGES)
def test_the_consumer_notices_another_schema(pair, file, change, written, tmp_path):
    content = json.loads(written(file).read_text())
    CHANGES[change](content["schema"])
    content["batches"] = []
    other = tmp_path / "other.json"
    other.write_text(json.dumps(content))
    if pair[1].name == "nanoarrow" and change == "metadata of an item":
        send_schema(*pair, other, written(file))
        pytest.skip("nanoarrow: it compares the metadata of columns, not that of their children")
    with pytest.raises(Difference, match="Import"):
        send_schema(*pair, other, written(file))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS, ids=lambda i: i.name)
def test_a_batch_that_is_not_released_is_counted(implementation, written):
    path = written(file_named("primitive"))
    array = abi.ArrowArray()
    before = implementation.allocated()
    implementation.export_batch(path, 0, array)
    assert implementation.allocated() > before
    abi.release(array)
    assert implementation.allocated() == before
