import pytest

import compare
import train


def test_training():
    """The model finds the weights of the loader's data, one batch after the other in two batches of memory."""
    assert [round(float(w), 2) for w in train.train(10_000, 40)] == [2.0, -1.0, 0.5]


def test_columns_are_the_loaders_memory():
    for batch in train.batches(1000, 3):
        arrays = train.columns(batch)
        assert [a.shape for a in arrays] == [(1000,)] * 4
        with open("/proc/self/maps") as maps:
            shared = [line.split()[0].split("-") for line in maps if "/memfd:arrowdevice" in line]
        at = batch.column(0).buffers()[1].address
        assert any(int(start, 16) <= at < int(end, 16) for start, end in shared)
        del arrays


def test_loader_that_fails(capfd):
    with pytest.raises(RuntimeError, match="the loader has failed: 1"):
        list(train.batches(-1, 1))
    assert "ROWS = -1" in capfd.readouterr().err


def test_comparison(monkeypatch):
    """Each way passes all batches; the figures of so small ones say nothing."""
    times = compare.compare(1, rounds=1)
    assert list(times) == ["shared", "pickled", "Flight"]
    assert all(seconds > 0 for seconds in times.values())


def test_program(capsys):
    train.main("1000", "40")
    assert capsys.readouterr().out == "y = 2.00 x0 + -1.00 x1 + 0.50 x2\n"
