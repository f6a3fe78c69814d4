"""The rules for every test: no violation on the simulated GPU, and bytes that went over it where they should."""

import pytest

import simulator


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """Writes a file once for all tests: written(file, changed) is its path."""
    folder, paths = tmp_path_factory.mktemp("json"), {}

    def write(file, changed=None):
        key = file.name, changed
        if key not in paths:
            paths[key] = file.write(folder, changed)
        return paths[key]

    return write


@pytest.fixture
def over_gpu():
    """Returns the bytes that went to the GPU since the test began, and those that came back. None
    without the simulator, which counts them."""
    if not simulator.is_simulator:
        return lambda: None
    before = simulator.report()["bytes"]

    def since():
        now = simulator.report()["bytes"]
        return now["htod"] - before["htod"], now["dtoh"] - before["dtoh"]

    return since


@pytest.fixture(autouse=True)
def no_violations():
    yield
    if simulator.is_simulator:
        violations = simulator.report()["violations"]
        simulator.library.cudasim_forget_violations()
        assert violations == []
