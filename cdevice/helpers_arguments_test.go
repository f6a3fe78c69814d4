package cdevice_test

import (
	"context"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// given is good arguments for every function.
type given struct {
	t       *testing.T
	rec     arrow.RecordBatch
	host    device.Device
	batch   *cdevice.RecordBatch
	array   *cdevice.Array
	chunked *arrow.Chunked
}

func (g *given) arrowReader() array.RecordReader {
	rdr, err := array.NewRecordReader(g.rec.Schema(), []arrow.RecordBatch{g.rec})
	require.NoError(g.t, err)
	g.t.Cleanup(rdr.Release)
	return rdr
}

func (g *given) reader() *cdevice.RecordReader {
	r, err := cdevice.WrapRecordReader(g.arrowReader(), g.host)
	require.NoError(g.t, err)
	g.t.Cleanup(r.Release)
	return r
}

func (g *given) arrays() *cdevice.ArrayReader {
	r, err := cdevice.WrapChunked(g.chunked, g.host)
	require.NoError(g.t, err)
	g.t.Cleanup(r.Release)
	return r
}

// structs are the C structs of one interface, with their names.
type structs[A cdevice.ArrayStruct, S cdevice.StreamStruct] struct{ array, stream string }

var (
	deviceStructs = structs[cdevice.CArrowDeviceArray, cdevice.CArrowDeviceArrayStream]{"ArrowDeviceArray", "ArrowDeviceArrayStream"}
	plainStructs  = structs[cdata.CArrowArray, cdata.CArrowArrayStream]{"ArrowArray", "ArrowArrayStream"}
)

func exportedBatch[A cdevice.ArrayStruct](g *given) *A {
	out := new(A)
	require.NoError(g.t, cdevice.ExportRecordBatch(g.batch, out, nil))
	return out
}

func exportedOne[A cdevice.ArrayStruct](g *given) *A {
	out := new(A)
	require.NoError(g.t, cdevice.ExportArray(g.array, out, nil))
	return out
}

func exportedReader[S cdevice.StreamStruct](g *given) *S {
	out := new(S)
	require.NoError(g.t, cdevice.ExportRecordReader(g.reader(), out))
	return out
}

func exportedArrayReader[S cdevice.StreamStruct](g *given) *S {
	out := new(S)
	require.NoError(g.t, cdevice.ExportArrayReader(g.arrays(), out))
	return out
}

func (g *given) schema() *cdata.CArrowSchema {
	out := new(cdata.CArrowSchema)
	require.NoError(g.t, cdevice.ExportSchema(g.rec.Schema(), out))
	return out
}

func (g *given) field() *cdata.CArrowSchema {
	out := new(cdata.CArrowSchema)
	require.NoError(g.t, cdevice.ExportField(g.rec.Schema().Field(0), out))
	return out
}

// newArray and newBatch check that the memory is given back.
func (g *given) newArray(dev device.Device, dt arrow.DataType) error {
	released := 0
	err := second(cdevice.NewArray(dev, dt, cdevice.ArrayData{}, cdevice.Lifetime{Release: func() { released++ }}))
	assert.Equal(g.t, 1, released)
	return err
}

func (g *given) newBatch(dev device.Device, s *arrow.Schema) error {
	released := 0
	err := second(cdevice.NewRecordBatch(dev, s, 0, make([]cdevice.ArrayData, 2), cdevice.Lifetime{Release: func() { released++ }}))
	assert.Equal(g.t, 1, released)
	return err
}

// exportAsync hands over a handler, which is released.
func (g *given) exportAsync(ctx context.Context, r *cdevice.RecordReader) (*cdevice.AsyncExport, error) {
	handler := new(cdevice.CArrowAsyncDeviceStreamHandler)
	s := importAsync(g.t, background, handler, 0)
	defer s.close()
	return cdevice.ExportAsync(ctx, r, handler)
}

func (g *given) hostReader(ctx context.Context) error {
	h := g.reader().HostReader(ctx, nil)
	defer h.Release()
	assert.Equal(g.t, ctx != nil, h.Next())
	assert.True(g.t, h.Schema().Equal(g.rec.Schema()))
	return h.Err()
}

// asyncStream calls do with a stream whose handler is released.
func (g *given) asyncStream(do func(*cdevice.AsyncStream) error, opts ...in) error {
	handler := new(cdevice.CArrowAsyncDeviceStreamHandler)
	s, err := cdevice.ImportAsync(background, handler, 0, opts...)
	if err != nil {
		return err
	}
	cdevice.ReleaseStruct(handler)
	defer func() { assert.NoError(g.t, s.Close(background)) }()
	return do(s)
}

// newGiven is good arguments, which are released at the end of the test.
func newGiven(t *testing.T) *given {
	g := &given{t: t, rec: twoColumns(t), host: device.CPUDevice()}
	g.batch = wrap(t, g.rec)
	g.array = g.batch.Column(0)
	g.chunked = arrow.NewChunked(g.rec.Column(0).DataType(), []arrow.Array{g.rec.Column(0)})
	t.Cleanup(func() {
		g.array.Release()
		g.chunked.Release()
	})
	return g
}
