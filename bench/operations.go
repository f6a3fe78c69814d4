//go:build cgo

package main

import (
	"context"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
)

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// carray is a struct ArrowDeviceArray as both libraries see it.
type carray struct{ cdevice.CArrowDeviceArray }

func (a *carray) plain() *cdata.CArrowArray { return (*cdata.CArrowArray)(unsafe.Pointer(&a.Array)) }

func operations(s shape) []operation {
	return []operation{
		exportRelease(s), wrapExportRelease(s), importRelease(s), importViewRelease(s), schemaBothWays(s),
		plainBothWays(s),
		batchesThroughStream(s, "stream", deviceStream), readerThroughStream(s, "wrap+stream", deviceStream),
		readerToReader(s, "wrap+stream+view", deviceStream),
		batchesThroughStream(s, "plain stream", plainStream), readerThroughStream(s, "wrap+plain stream", plainStream),
		readerToReader(s, "wrap+plain stream+view", plainStream),
	}
}

func exportRelease(s shape) operation {
	e := newExporter(s)
	return operation{
		name:  "export+release",
		ours:  e.do,
		peers: []peer{{"cdata", cdataExport(s)}, {"C floor", s.tree.ExportRelease}},
		close: e.batch.Release,
	}
}

func cdataExport(s shape) func(int) {
	out := new(cdata.CArrowArray)
	return func(n int) {
		for range n {
			*out = cdata.CArrowArray{}
			cdata.ExportArrowRecordBatch(s.rec, out, nil)
			cdata.ReleaseCArrowArray(out)
		}
	}
}

func wrapExportRelease(s shape) operation {
	out := new(carray)
	return operation{
		name: "wrap+export+release",
		ours: func(n int) {
			for range n {
				batch := must(cdevice.WrapRecordBatch(s.rec, device.CPUDevice()))
				check(cdevice.ExportRecordBatch(batch, &out.CArrowDeviceArray, nil))
				batch.Release()
				cdevice.ReleaseCArrowDeviceArray(&out.CArrowDeviceArray)
			}
		},
		peers: []peer{{"cdata", cdataExport(s)}},
	}
}

// plainBothWays is a batch through an ArrowArray: exported, imported and released, on both
// sides.
func plainBothWays(s shape) operation {
	batch := must(cdevice.WrapRecordBatch(s.rec, device.CPUDevice()))
	schema := s.rec.Schema()
	out := new(cdata.CArrowArray)
	return operation{
		name: "plain both ways",
		ours: func(n int) {
			for range n {
				check(cdevice.ExportPlainRecordBatch(batch, out, nil))
				must(cdevice.ImportPlainRecordBatchWithSchema(out, schema)).Release()
			}
		},
		peers: []peer{{"cdata", func(n int) {
			for range n {
				*out = cdata.CArrowArray{}
				cdata.ExportArrowRecordBatch(s.rec, out, nil)
				must(cdata.ImportCRecordBatchWithSchema(out, schema)).Release()
			}
		}}},
		close: batch.Release,
	}
}

// The import operations pay for the C producer too, on both sides.

func importRelease(s shape) operation {
	in := new(carray)
	schema := s.rec.Schema()
	return operation{
		name: "import+release",
		ours: func(n int) {
			for range n {
				s.tree.Export(abi.As[abi.ArrowDeviceArray](&in.CArrowDeviceArray))
				must(cdevice.ImportRecordBatchWithSchema(&in.CArrowDeviceArray, schema)).Release()
			}
		},
		peers: []peer{{"cdata", cdataImport(s)}},
	}
}

func cdataImport(s shape) func(int) {
	in := new(carray)
	schema := s.rec.Schema()
	return func(n int) {
		for range n {
			s.tree.Export(abi.As[abi.ArrowDeviceArray](&in.CArrowDeviceArray))
			must(cdata.ImportCRecordBatchWithSchema(in.plain(), schema)).Release()
		}
	}
}

func importViewRelease(s shape) operation {
	in := new(carray)
	schema := s.rec.Schema()
	ctx := context.Background()
	return operation{
		name: "import+view+release",
		ours: func(n int) {
			for range n {
				s.tree.Export(abi.As[abi.ArrowDeviceArray](&in.CArrowDeviceArray))
				batch := must(cdevice.ImportRecordBatchWithSchema(&in.CArrowDeviceArray, schema))
				view := must(batch.HostView(ctx))
				batch.Release()
				view.Release()
			}
		},
		peers: []peer{{"cdata", cdataImport(s)}},
	}
}

func schemaBothWays(s shape) operation {
	schema := s.rec.Schema()
	out := new(cdata.CArrowSchema)
	return operation{
		name: "schema both ways",
		ours: func(n int) {
			for range n {
				check(cdevice.ExportSchema(schema, out))
				must(cdevice.ImportSchema(out))
			}
		},
		peers: []peer{{"cdata", func(n int) {
			for range n {
				*out = cdata.CArrowSchema{}
				cdata.ExportArrowSchema(schema, out)
				must(cdata.ImportCArrowSchema(out))
			}
		}}},
	}
}
