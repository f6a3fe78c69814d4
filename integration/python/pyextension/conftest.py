"""The rule for every test of functions of Go: at its end, nothing is alive on either side. The conftest.py above has
the rule for PyArrow's memory."""

import pytest

import extension


@pytest.fixture(autouse=True)
def nothing_is_alive(request, nothing_leaks):
    yield
    if not getattr(request.node, "failed", False):
        assert extension.settled() == {}


@pytest.fixture
def ext():
    return extension.ext
