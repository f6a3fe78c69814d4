"""The cookbook's Python extensions: one command by command, in an empty folder."""

import os
import pathlib
import re
import shutil
import sys

import wheels

PAGE = wheels.ROOT / "docs" / "cookbook.md"
# What needs a network, and what does the same without one.
INSTEAD = {
    "git clone https://github.com/arrowdevice/arrowdevice": f"ln -s '{wheels.ROOT}' arrowdevice",
    "pip install '../arrowdevice/python[build]' polars duckdb": "pip install --no-index ../arrowdevice-*.whl && python ../peers.py",
}


def blocks(title):
    """Pairs of a language and the code of the page's section."""
    section = PAGE.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^```(\w+)\n(.*?)^```$", section, re.M | re.S)


def test_python_extension(tmp_path):
    files, script = {"go": "main.go", "python": "use.py"}, ["set -e"]
    for language, code in blocks("A Python extension"):
        if language == "sh":
            script += code.splitlines()
        else:
            (tmp_path / files[language]).write_text(code)
            script.append(f"mv '{tmp_path}/{files.pop(language)}' .")
    assert not files and all(script.count(line) == 1 for line in INSTEAD)

    # A wheel of the package arrowdevice, which pip makes without a network.
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    options = ["--no-index", "--no-build-isolation", "--no-deps", "--no-cache-dir", "-w", tmp_path]
    source = tmp_path / "python"
    shutil.copytree(wheels.ROOT / "python", source)  # pip writes beside it
    wheels.run(*pip, "wheel", *options, source)
    (tmp_path / "peers.py").write_text(wheels.SEE_PEERS)

    script = "\n".join(INSTEAD.get(line, line) for line in script)
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    printed = wheels.run("bash", "-c", script, cwd=tmp_path, env={**os.environ, "PATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    rows = [re.findall(r"[\w.]+", line) for line in printed.splitlines() if re.search("Oslo|Lima|Pune", line)]
    assert rows == [["Oslo", "12.5", "12.5"], ["Lima", "null", "12.5"], ["Pune", "3.0", "15.5"], ["Pune", "15.5"]]


FILTER = """
import filters, polars as pl
more = pl.DataFrame({"city": ["Oslo", None, "a name of more than twelve bytes"], "code": [b"O", b"L", None], "km": [12.5, None, 3.0]})
table, rows = pl.concat([more, more], rechunk=False)[1:], pl.Series([True, False, None, False, True])
assert pl.DataFrame(filters.keep(table, rows)).equals(table.filter(rows))
nested = table.select(pl.concat_list("city"), pl.struct("code"))
assert pl.DataFrame(filters.keep(nested.to_arrow(), rows)).equals(nested.filter(rows))
try:
    filters.keep(nested, rows)
except NotImplementedError as e:
    print(e)
"""


def test_filter_of_polars(tmp_path):
    wheel = wheels.build(wheels.ROOT / "examples" / "filter", tmp_path, "--name", "filters")
    environment = wheels.Environment(tmp_path / "environment")
    environment.install(wheel)
    environment.see_peers()
    assert "no kernel matching input types" in environment.run(FILTER)  # once there is one, the page and the program have too much
