"""The pairs of libraries that a run of tests has proved: those of tests that passed."""

import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys

import pytest

import pairs

TESTS = """
import pandas
import pytest


@pytest.mark.pair("polars", "streams", "to it")
def test_passes():
    pass


@pytest.mark.pair("DuckDB", "streams", "to it")
def test_skipped():
    pytest.skip("not there")


@pytest.mark.pair("DuckDB", "arrays", "to it")
@pytest.mark.xfail
def test_expected_to_fail():
    assert False


@pytest.mark.pair("DuckDB", "asynchronous streams", "to it")
@pytest.mark.xfail
def test_passes_against_expectation():
    pass


@pytest.mark.pair("DuckDB", "device arrays", "to it")
@pytest.mark.parametrize("works", [True, False])
def test_fails_once(works):
    assert works


@pytest.fixture
def failing():
    yield
    assert False


@pytest.mark.pair("DuckDB", "DLPack", "to it")
def test_fails_at_its_end(failing):
    pass


@pytest.mark.pair("{peer}", "streams", "from it", "to it")
@pytest.mark.parametrize("peer", ["nanoarrow", pandas.Series([1])])
def test_of_a_parameter(peer):
    if isinstance(peer, str):
        pytest.skip("not this one")


@pytest.mark.pair("PyArrow", "arrays", "to it", on="GPU")
def test_elsewhere():
    pass
"""


def run(folder, tests, *arguments):
    """Runs tests, and returns how that ended and the pairs."""
    (folder / "test_it.py").write_text(tests)
    file = folder / "build" / "pairs.json"
    environment = {**os.environ, "PAIRS": str(file), "PYTHONPATH": str(pathlib.Path(pairs.__file__).parent)}
    command = [sys.executable, "-m", "pytest", "-p", "pairs", "-p", "no:cacheprovider", "--strict-markers", *arguments, "test_it.py"]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=180)
    return ended, json.loads(file.read_text())["pairs"] if file.exists() else None


def test_what_passed_is_proved(tmp_path):
    ended, proved = run(tmp_path, TESTS)
    assert ended.returncode == 1, ended.stdout
    version = importlib.metadata.version
    assert [(p["peer"], p["version"], p["protocol"], p["direction"], p["on"], p["tests"]) for p in proved] == [
        ("PyArrow", version("pyarrow"), "arrays", "to it", "GPU", ["test_it.py"]),
        ("pandas", version("pandas"), "streams", "from it", "CPU", ["test_it.py"]),
        ("pandas", version("pandas"), "streams", "to it", "CPU", ["test_it.py"]),
        ("polars", version("polars"), "streams", "to it", "CPU", ["test_it.py"]),
    ]


@pytest.mark.parametrize(
    "marker, text",
    [
        ('"polar", "streams", "to it"', "no peer 'polar', but PyArrow"),
        ('"polars", "stream", "to it"', "no protocol 'stream', but arrays"),
        ('"polars", "streams", "to"', "no direction 'to', but from it, to it"),
        ('"polars", "streams"', "no direction None, but from it, to it"),
    ],
)
def test_unknown_names_end_the_run(tmp_path, marker, text):
    ended, proved = run(tmp_path, f"import pytest\n\n@pytest.mark.pair({marker})\ndef test_it(): pass\n")
    assert ended.returncode != 0 and text in ended.stdout + ended.stderr
    assert not proved


def test_without_a_file_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.delenv("PAIRS", raising=False)
    (tmp_path / "test_it.py").write_text("import os\n\ndef test_it(): assert 'PAIRS' not in os.environ\n")
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(pairs.__file__).parent)}
    command = [sys.executable, "-m", "pytest", "-p", "pairs", "-p", "no:cacheprovider", "test_it.py"]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180)
    assert ended.returncode == 0, ended.stdout
    assert [file.name for file in tmp_path.iterdir() if file.suffix == ".json"] == []
