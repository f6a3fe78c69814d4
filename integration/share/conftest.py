"""The processes that tests command, by name: an owner and an opener of each language, which live as long as the module's tests
do."""

import signal

import pytest

import machines

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has what is in the background ignore it


@pytest.fixture(scope="module", params=machines.LANGUAGES)
def owner(request):
    with machines.process(request.param) as p:
        yield p


@pytest.fixture(scope="module", params=machines.LANGUAGES)
def opener(request):
    with machines.process(request.param) as p:
        p.share()  # from here on it has all that it needs to wait for sockets
        p.ask("close")
        yield p
