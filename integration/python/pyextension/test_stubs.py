"""Type checkers know the functions of a wheel: parameters, results and documentation."""

import ast
import zipfile

import pytest

import checkers
import wheels

MAIN = '''// Command kinds has a function of each kind.
package main

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/pyextension"
)

func main() {}

func init() {
	pyextension.Func("stream", func(ctx context.Context, s *cdevice.RecordReader) (*cdevice.RecordReader, error) { return s, nil })
	pyextension.Func("batch", func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, int64) { return b, b.NumRows() })
	pyextension.Func("column", func(a *cdevice.Array) *cdevice.Array { return a })
	pyextension.Func("schema", func(s *arrow.Schema) *arrow.Schema { return s })
	pyextension.Func("scalars", func(a string, b []byte, c int, d float64, e bool) map[string]any { return map[string]any{"a": a} },
		pyextension.WithParams("a", "b", "c", "d", "e"), pyextension.WithDefault("d", 0.5), pyextension.WithDefault("e", true))
	pyextension.Func("many", func(names []string, sizes map[string]int, limit *int) []string { return names },
		pyextension.WithParams("names", "sizes", "limit"), pyextension.WithDefault("limit", nil),
		pyextension.WithDoc("Says \\"many\\".\\n\\n    A \\\\ and a ''' + "\\\"\\\"\\\"" + '''."))
	pyextension.Func("Error", func() {})
	pyextension.Func("int", func(n int) int { return n }, pyextension.WithParams("n"))
	pyextension.Func("bytes", func(b []byte) []byte { return b })
}
'''
# Each line is right but for those with a comment, which is the code of mypy's error.
USES = """
import asyncio
import kinds
import polars as pl

frame = pl.DataFrame({"n": [1]})
a: kinds.RecordReader = kinds.stream(frame)
b: kinds.RecordReader = kinds.stream([frame, frame])
c: kinds.RecordReader = kinds.stream(lambda: None)
kinds.stream(3)  # arg-type
kinds.stream("text")  # arg-type
kinds.stream()  # call-arg
batch, rows = kinds.batch(frame)
d: kinds.RecordBatch = batch
e: int = rows
m: kinds.Array = batch["n"]
n: kinds.RecordBatch = batch[1:3]
o: kinds.Array = batch[1:3]  # assignment
p: list[kinds.RecordBatch] = [part[1:] for part in a]
pl.DataFrame(batch).equals(a.to_polars())
kinds.batch(kinds.batch(batch)[0])
kinds.batch([frame])  # arg-type
f: kinds.Array = kinds.column(frame["n"])
g: kinds.Array = kinds.column(array=f)
kinds.column(values=f)  # call-arg
h: kinds.Schema = kinds.schema(kinds.schema(batch.schema))
kinds.schema(frame)  # arg-type
i: dict[str, object] = kinds.scalars("a", b"b", 1)
kinds.scalars("a", bytearray(b"b"), c=1, d=2, e=False)
kinds.scalars(b"a", b"b", 1)  # arg-type
kinds.scalars("a", "b", 1)  # arg-type
kinds.scalars("a", b"b", 1.5)  # arg-type
kinds.scalars("a", b"b", 1, e="yes")  # arg-type
j: list[str] = kinds.many(["a"], {"a": 1})
k: list[str] = kinds.many(("a", "b"), {}, None)
kinds.many([1], {})  # list-item
kinds.nothing()  # attr-defined
kinds.Error()
q: int = kinds.int(n=1)
r: bytes = kinds.bytes(bytearray(b"b"))
kinds.int("1")  # arg-type
async def later() -> None:
    l: list[str] = await kinds.many.aio([], {}, limit=3)
    await kinds.many.aio([])  # call-arg
try:
    asyncio.run(later())
except kinds.Panic:
    pass
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = wheels.module(tmp_path_factory.mktemp("modules") / "kinds", main=MAIN)
    return wheels.build(folder, folder, GOFLAGS="-mod=mod")


def test_type_checkers(wheel, tmp_path):
    environment = wheels.Environment(tmp_path / "environment")
    environment.install(wheel)
    environment.see_peers()
    checkers.compare(USES, environment, tmp_path)


def test_stubs(wheel):
    with zipfile.ZipFile(wheel) as archive:
        stubs = ast.parse(archive.read("kinds/__init__.pyi"))
        module = ast.parse(archive.read("kinds/__init__.py"))
    assert ast.get_docstring(stubs) == ast.get_docstring(module) == "Command kinds has a function of each kind."
    (many,) = [node for node in stubs.body if isinstance(node, ast.ClassDef) and node.name == "_many_function"]
    for function in many.body:
        assert ast.get_docstring(function) == 'Says "many".\n\nA \\ and a """.'
    (scalars,) = [node for node in stubs.body if isinstance(node, ast.ClassDef) and node.name == "_scalars_function"]
    assert ast.unparse(scalars.body[0].args) == "_self, a: str, b: _AnyBytes, c: builtins.int, d: float=0.5, e: bool=True"
    # The function has the name before the class.
    assert not [node for node in module.body if isinstance(node, ast.ImportFrom) and node.names[0].name == "Error"]
    assert ast.literal_eval(next(n.value for n in module.body if isinstance(n, ast.Assign) and n.targets[0].id == "__all__")) == [
        "Array", "Cancelled", "Error", "Panic", "RecordBatch", "RecordReader", "Schema",
        "batch", "bytes", "column", "int", "many", "scalars", "schema", "stream",
    ]  # fmt: skip
