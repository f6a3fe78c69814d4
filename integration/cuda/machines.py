"""A pytest plugin: runs each test on every machine, that is in a process whose
driver was given that machine's options.

The simulator reads its options once per process. So each machine has a process of its
own, which collects the same tests, runs the requested ones, and sends back pytest's
reports. When a test has failed, or the process died of it, the next one gets a new
process: the driver may not recover.
"""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

import pytest
from _pytest.runner import runtestprotocol

import simulator

MACHINES = {
    # As fast as it can: only the counters show unnecessary waits.
    "in_order": "",
    # All work is late, so a read without a wait sees the old contents.
    "delayed": "delay=400",
    # Streams overtake each other, and copies to and from pageable memory are late too,
    # as the manual allows.
    "random": "schedule=random,delay=200,seed=7,pageable_async=1",
    # No work is done before the host waits, so data that it reads too early is never
    # there.
    "lazy": "schedule=lazy",
    "two_devices": "devices=2,delay=100",
}
if not simulator.is_simulator:
    MACHINES = {"driver": ""}

_FD = "MACHINES_FD"  # in the environment of a machine's process: its end of a socket


def pytest_configure(config):
    inside = os.environ.pop(_FD, None)
    if inside is not None:
        config.pluginmanager.register(_Inside(config, int(inside)))
    else:
        config.pluginmanager.register(_Outside(config))


def pytest_generate_tests(metafunc):
    if "machine" not in metafunc.fixturenames or metafunc.definition.get_closest_marker("program"):
        return
    only = metafunc.definition.get_closest_marker("machines")
    wanted = only.args if only else MACHINES
    if metafunc.definition.get_closest_marker("two_devices"):
        wanted = ["two_devices"]
    # Another driver is one machine, even if it has several devices.
    names = [name for name in MACHINES if name in wanted or not simulator.is_simulator]
    metafunc.parametrize("machine", names, scope="session")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    def place(item):
        name = _machine(item)
        return (list(MACHINES).index(name) if name else -1, _is_at_exit(item))

    items.sort(key=place)


def _machine(item):
    return item.callspec.params.get("machine") if hasattr(item, "callspec") else None


def _is_at_exit(item):
    return item.get_closest_marker("at_exit") is not None


def _is_ours(item):
    """Whether a test runs in the process that the user started."""
    return _machine(item) is None or _is_at_exit(item)


class _Outside:
    """In the process that the user started."""

    def __init__(self, config):
        self.config = config
        self.process = None  # of the machine that is at work
        self.reports = {}  # by machines that are done

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item, nextitem):
        name = _machine(item)
        if self.process is not None and (self.process.name != name or _is_ours(item)):
            self.end()
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        if _is_ours(item):
            following = item.session.items[item.session.items.index(item) + 1 :]
            runtestprotocol(item, nextitem=next(filter(_is_ours, following), None))
        else:
            together = nextitem is not None and _machine(nextitem) == name and not _is_ours(nextitem)
            self.delegate(item, nextitem if together else None)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def delegate(self, item, nextitem):
        if self.process is None:
            self.process = _Process(item.session, _machine(item))
        failed = False
        for report in self.process.run(item, nextitem):
            item.ihook.pytest_runtest_logreport(report=report)
            failed = failed or report.failed
        if failed:
            self.end(failed=True)

    def pytest_sessionfinish(self):
        if self.process is not None:
            self.end()

    def end(self, failed=False):
        process, self.process = self.process, None
        report = process.end()
        # A failed test did not reach its end, where it releases its objects.
        if not failed:
            self.reports.setdefault(process.name, []).append(report)


class _Lines:
    """One end of a socket, for JSON in lines."""

    def __init__(self, end):
        self._file = end.makefile("rw")
        end.close()  # when the file is closed

    def send(self, value):
        with contextlib.suppress(ConnectionError):  # there will be no answer either
            self._file.write(json.dumps(value) + "\n")
            self._file.flush()

    def __iter__(self):
        with contextlib.suppress(ConnectionError):
            yield from map(json.loads, self._file)

    def close(self):
        with contextlib.suppress(ConnectionError):
            self._file.close()


class _Process:
    """The process of a machine."""

    def __init__(self, session, name):
        self.name, self.config = name, session.config
        self.folder = tempfile.TemporaryDirectory()
        self.report = pathlib.Path(self.folder.name, "report.json")
        self.errors = open(pathlib.Path(self.folder.name, "stderr"), "w+b")
        ours, theirs = socket.socketpair()
        options = simulator.options(MACHINES[name], f"report={self.report}")
        files = sorted({str(item.path) for item in session.items if _machine(item) == name})
        self.process = subprocess.Popen(
            # The timeout is for a driver that loses work: its callers wait for ever.
            [sys.executable, "-m", "pytest", f"--tb={self.config.option.tbstyle}", "-o", "faulthandler_timeout=60", *files],
            cwd=self.config.rootpath,
            env={**os.environ, "CUDASIM": options, _FD: str(theirs.fileno()), "GOLIB_CRASH_FD": str(self.errors.fileno())},
            pass_fds=[theirs.fileno(), self.errors.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self.errors,
            stderr=self.errors,
        )
        self.lines = _Lines(ours)
        theirs.close()

    def run(self, item, nextitem):
        """The reports about a test, one by one."""
        order = [item.nodeid, nextitem.nodeid if nextitem else None, self.config.get_verbosity()]
        self.lines.send(order)
        for answer in self.lines:
            if answer is None:
                return
            yield self.config.hook.pytest_report_from_serializable(config=self.config, data=answer)
        yield self._death(item)

    def _death(self, item):
        status = self.process.wait()
        self.errors.seek(0)
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        text = f"the process of machine {self.name!r} {how}\n{self.errors.read().decode(errors='replace')}"
        return pytest.TestReport(item.nodeid, item.location, dict.fromkeys(item.keywords, 1), "failed", text, "call")

    def end(self):
        """Lets the process end, and returns the driver's report, if there is one."""
        self.lines.close()
        self.process.wait()
        self.errors.close()
        report = json.loads(self.report.read_text()) if self.report.exists() else None
        self.folder.cleanup()
        return report


class _Inside:
    """In the process of a machine."""

    def __init__(self, config, fd):
        self.config = config
        self.lines = _Lines(socket.socket(fileno=fd))

    def pytest_runtestloop(self, session):
        items = {item.nodeid: item for item in session.items}
        for name, following, verbosity in self.lines:
            self.config.option.verbose = verbosity
            item = items[name]
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=items.get(following))
            self.lines.send(None)
        return True

    def pytest_runtest_logreport(self, report):
        self.lines.send(self.config.hook.pytest_report_to_serializable(config=self.config, report=report))


@pytest.fixture
def reports_at_exit(request):
    """The driver's reports when the processes of the machine ended. It is for tests
    that are marked at_exit."""
    outside = next(p for p in request.config.pluginmanager.get_plugins() if isinstance(p, _Outside))
    return outside.reports.get(_machine(request.node), [])
