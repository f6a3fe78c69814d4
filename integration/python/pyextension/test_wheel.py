"""The wheel of the example: what is in it, and that it works where nothing else is."""

import base64
import csv
import email
import hashlib
import pathlib
import re
import subprocess
import sys
import zipfile

import packaging.metadata
import packaging.tags
import packaging.utils
import pytest

import wheels


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return wheels.build(wheels.EXAMPLE, tmp_path_factory.mktemp("wheel"), "--name", "totals", "--version", "1.2.3")


@pytest.fixture(scope="module")
def files(wheel):
    """The contents by name."""
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def library(files, tmp_path_factory):
    path = tmp_path_factory.mktemp("library") / "libtotals.so"
    path.write_bytes(files["totals/libtotals.so"])
    return path


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """With the wheel alone."""
    environment = wheels.Environment(tmp_path_factory.mktemp("environment"))
    environment.install(wheel)
    return environment


INFO = "totals-1.2.3.dist-info"
RUNTIME = wheels.ROOT / "python/arrowdevice"


def test_files(files):
    package = {name for name in files if name.startswith("totals/")}
    runtime = {f"totals/_arrowdevice/{path.name}" for path in [*RUNTIME.glob("*.py"), RUNTIME / "py.typed"]}
    assert package == {"totals/__init__.py", "totals/__init__.pyi", "totals/py.typed", "totals/libtotals.so"} | runtime
    assert "totals/_arrowdevice/__init__.py" in runtime
    others = {name.split("/")[1] for name in files if name not in package}
    assert others == {"METADATA", "WHEEL", "RECORD", "licenses"}
    assert all(name.startswith(INFO + "/") for name in files if name not in package)
    assert list(files)[-1] == f"{INFO}/RECORD"


def test_record(files):
    lines = list(csv.reader(files[f"{INFO}/RECORD"].decode().splitlines()))
    assert lines.pop() == [f"{INFO}/RECORD", "", ""]
    assert [name for name, _, _ in lines] == list(files)[:-1]
    for name, digest, size in lines:
        hashed = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).decode().rstrip("=")
        assert (digest, int(size)) == (f"sha256={hashed}", len(files[name])), name


def test_metadata(files):
    metadata = packaging.metadata.Metadata.from_email(files[f"{INFO}/METADATA"])  # validates it
    assert (metadata.name, str(metadata.version), str(metadata.requires_python)) == ("totals", "1.2.3", ">=3.10")
    assert metadata.requires_dist is None
    assert metadata.summary.startswith("Command pyextension ")
    # The licence of the module, and of all that is linked into the library.
    ours = "github.com/arrowdevice/arrowdevice/LICENSE"
    for path in (ours, "go/LICENSE", "github.com/apache/arrow-go/v18/LICENSE.txt", "github.com/apache/arrow-go/v18/NOTICE.txt"):
        assert path in metadata.license_files
    assert files[f"{INFO}/licenses/{ours}"] == (wheels.ROOT / "LICENSE").read_bytes()
    assert {f"{INFO}/licenses/{path}" for path in metadata.license_files} == {name for name in files if "/licenses/" in name}


def test_tag(wheel, files, library):
    name, version, _, tags = packaging.utils.parse_wheel_filename(wheel.name)
    assert (name, str(version), len(tags)) == ("totals", "1.2.3", 1)
    (tag,) = tags
    assert tag in packaging.tags.sys_tags()
    described = email.message_from_bytes(files[f"{INFO}/WHEEL"])
    assert described["Tag"] == str(tag) and described["Root-Is-Purelib"] == "false"
    if sys.platform != "linux":
        return
    symbols = wheels.run("readelf", "--wide", "--dyn-syms", library)
    needed = max(int(minor) for minor in re.findall(r"@GLIBC_2\.(\d+)", symbols))
    assert tag.platform.startswith(f"manylinux_2_{needed}_")


def test_pythons(wheel):
    """Every CPython since the oldest, but for free-threaded builds, and no other Python."""
    _, _, _, (tag,) = packaging.utils.parse_wheel_filename(wheel.name)
    for minor in range(10, 17):
        assert tag in packaging.tags.cpython_tags((3, minor), [f"cp3{minor}"], [tag.platform])
    assert tag not in packaging.tags.cpython_tags((3, 9), ["cp39"], [tag.platform])
    assert tag not in packaging.tags.cpython_tags((3, 14), ["cp314t"], [tag.platform])
    assert tag not in packaging.tags.compatible_tags((3, 14), "cp314", [tag.platform])  # those of every Python


@pytest.mark.skipif(sys.platform != "linux", reason="nm")
def test_only_entry_points_are_visible(library):
    defined = [line.split()[-1] for line in wheels.run("nm", "-D", "--defined-only", library).splitlines()]
    assert sorted(defined) == wheels.ENTRIES


@pytest.mark.skipif(sys.platform != "linux", reason="nm")
def test_stripped(library):
    assert "no symbols" in subprocess.run(["nm", library], capture_output=True, text=True, check=False).stderr
    assert ".debug_" not in wheels.run("readelf", "--wide", "--sections", library)


def test_nothing_of_the_simulator_or_of_the_machine_is_in_it(files):
    """But the names of the functions by which the library tells a simulated driver what it does for itself."""
    told = set(re.findall(rb"cudasim_\w+", (wheels.ROOT / "internal" / "cuda" / "watch.h").read_bytes()))
    for name, content in files.items():
        assert set(re.findall(rb"(?i)\w*cudasim\w*", content)) <= told, name
        assert str(wheels.ROOT).encode() not in content, name
        assert str(pathlib.Path.home()).encode() + b"/" not in content, name


def test_same_bytes_twice(wheel, tmp_path):
    temporary = tmp_path / "with space"  # also where the linker's files are
    temporary.mkdir()
    again = wheels.build(wheels.EXAMPLE, tmp_path, "--name", "totals", "--version", "1.2.3", umask=0o077, TMPDIR=str(temporary))
    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()
    assert list(temporary.iterdir()) == []


def test_source_date_epoch(tmp_path):
    wheel = wheels.build(wheels.EXAMPLE, tmp_path, "--name", "totals", SOURCE_DATE_EPOCH="1700000000")
    with zipfile.ZipFile(wheel) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(2023, 11, 14, 22, 13, 20)}


BARE = """
import pickle, sys, totals, traceback
assert totals.__all__ == sorted(totals.__all__) and "add_running_total" in totals.__all__ and set(totals.__all__) <= set(dir(totals))
assert "arrowdevice" not in sys.modules
assert totals.__version__ == "1.2.3"
try:
    import arrowdevice
except ImportError:
    pass
else:
    raise AssertionError("arrowdevice can be imported")
try:
    totals.add_running_total([1], "km")
except TypeError as refused:
    print(refused)
for name in set(totals.__all__) - {"add_running_total"}:
    assert getattr(totals, name).__module__ == "totals", name
error = pickle.loads(pickle.dumps(totals.Panic("out of cheese")))
assert traceback.format_exception_only(error) == ["totals.Panic: out of cheese\\n"]
"""


def test_works_where_nothing_else_is(environment):
    printed = environment.run(BARE)
    assert printed.startswith("add_running_total: argument table: RecordBatch is wanted, not list")
    assert "No broken requirements found." in environment.pip("check")
    listed = environment.pip("list", "--format", "freeze").split()
    assert listed == ["totals==1.2.3"]


def test_example_in_another_environment(environment):
    environment.see_peers()
    printed = wheels.run(environment.python, "-I", wheels.EXAMPLE / "use.py")
    rows = [re.findall(r"[\w.]+", line) for line in printed.splitlines() if re.search("Oslo|Lima|Pune", line)]
    assert rows == [["Oslo", "12.5", "12.5"], ["Lima", "null", "12.5"], ["Pune", "3.0", "15.5"], ["Pune", "15.5"]]


def test_help_and_docstring(environment):
    printed = environment.run("import totals; help(totals.add_running_total); print(totals.__doc__)")
    without_quotes = printed.replace("'", "")  # Python 3.14 writes none around annotations
    assert "add_running_total(table: RecordBatch, column: str) -> RecordBatch" in without_quotes
    assert "Command pyextension adds a column" in printed
