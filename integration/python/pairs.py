"""A pytest plugin: the libraries that tests prove to work with Go, with the protocol and
the directions of each.

    @pytest.mark.pair("polars", "streams", "to it")
    @pytest.mark.pair("{peer}", "streams", "from it", "to it")  # the test's parameter peer

With PAIRS=FILE in the environment, the pairs of tests that passed are written to FILE, with
the versions of the libraries. The names are those of ci/pairs/names.json. ci/pairs makes the
tables of README.md and docs/interop.md of such files.
"""

import importlib.metadata
import json
import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = json.loads((ROOT / "ci" / "pairs" / "names.json").read_text())
DISTRIBUTIONS = {peer["name"]: peer.get("distribution") for peer in NAMES["peers"]}
# A distribution has the name of its first peer.
LIBRARIES = {peer["distribution"]: peer["name"] for peer in reversed(NAMES["peers"]) if "distribution" in peer}
DIRECTIONS = ["from it", "to it"]


def pytest_addoption(parser):
    parser.addini("pairs_on", "where the data of pairs are: CPU or GPU", default="CPU")


def pytest_configure(config):
    config.addinivalue_line("markers", "pair(peer, protocol, *directions, on=None): the test proves that these work together")
    # Not for the processes that tests start.
    config.pluginmanager.register(_Pairs(config, os.environ.pop("PAIRS", None)))


def parameter(item, name):
    """What a parameter of a test names: a library, by its own name or by an object of it."""
    value = item.callspec.params[name]
    named = [value] if isinstance(value, str) else [str(getattr(value, "name", "")), type(value).__module__.partition(".")[0]]
    return next((library(n) for n in named if library(n) in DISTRIBUTIONS), named[-1])


def library(name):
    """The name of a peer, given that or the name of its distribution."""
    return LIBRARIES.get(name, name)


def version(peer):
    """The version that is installed; ci/pairs knows those of Go modules."""
    if peer == "Arrow C++":
        import pyarrow

        return pyarrow.cpp_build_info.version
    return importlib.metadata.version(DISTRIBUTIONS[peer]) if DISTRIBUTIONS[peer] else ""


def place(config):
    on = config.getini("pairs_on")
    simulator = sys.modules.get("simulator")
    return "simulated GPU" if on == "GPU" and simulator.is_simulator else on


def claims(item):
    """What a test proves if it passes: (peer, protocol, direction, where the data are)."""
    for mark in item.iter_markers("pair"):
        peer, protocol, *directions = mark.args
        peer = parameter(item, peer[1:-1]) if peer.startswith("{") else library(peer)
        for kind, name, names in [
            ("peer", peer, DISTRIBUTIONS),
            ("protocol", protocol, NAMES["protocols"]),
            *(("direction", direction, DIRECTIONS) for direction in directions or [None]),
        ]:
            if name not in names:
                raise pytest.UsageError(f"{item.nodeid}: pair: no {kind} {name!r}, but {', '.join(names)}")
        for direction in directions:
            yield peer, protocol, direction, mark.kwargs.get("on") or place(item.config)


class _Pairs:
    def __init__(self, config, file):
        self.file = file
        self.claims = {}  # by tests
        self.passed, self.failed = set(), set()
        if file:
            pathlib.Path(file).unlink(missing_ok=True)

    def pytest_collection_modifyitems(self, items):
        self.claims = {item.nodeid: (item.path, list(claims(item))) for item in items}

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.add(report.nodeid)
        elif report.passed and report.when == "call" and not hasattr(report, "wasxfail"):
            self.passed.add(report.nodeid)

    def pytest_sessionfinish(self):
        if self.file:
            file = pathlib.Path(self.file)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps({"pairs": self.proven()}, indent=1) + "\n")

    def proven(self):
        """The pairs with a test that passed, and none that failed."""
        tests, broken = {}, set()
        for nodeid, (path, claimed) in self.claims.items():
            for claim in claimed:
                if nodeid in self.failed:
                    broken.add(claim)
                elif nodeid in self.passed:
                    tests.setdefault(claim, set()).add(path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name)
        return [
            {"peer": peer, "version": version(peer), "protocol": protocol, "direction": direction, "on": on, "tests": sorted(files)}
            for (peer, protocol, direction, on), files in sorted(tests.items())
            if (peer, protocol, direction, on) not in broken
        ]
