package triton

import (
	"context"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/interop/triton"
)

func text(dt arrow.DataType) *arrow.Schema {
	return arrow.NewSchema([]arrow.Field{{Name: "BYTES", Type: dt}}, nil)
}

// Text and bytes go to the model, which turns them to upper case, and come back.
func TestText(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	s := system.connect(t)
	long := strings.Repeat("x", 5000)
	for _, dt := range []arrow.DataType{arrow.BinaryTypes.String, arrow.BinaryTypes.LargeString, arrow.BinaryTypes.StringView} {
		part, err := s.upload(t, text(dt), `["","a","","ä\u0000b","`+long+`","no"]`).Slice(1, 5)
		require.NoError(t, err)
		in, out := s.input("in-"+dt.Name(), part), s.results("out-"+dt.Name(), text(dt), 9, triton.WithByteSize("BYTES", 6000))
		part.Release()
		for range 2 {
			got, err := s.infer("types", out, in)
			require.NoError(t, err, dt)
			check(t, got, `["A","","ä\u0000B","`+strings.ToUpper(long)+`"]`)
		}
	}
	for _, dt := range []arrow.DataType{arrow.BinaryTypes.Binary, arrow.BinaryTypes.LargeBinary, arrow.BinaryTypes.BinaryView} {
		in, out := s.input("in-"+dt.Name(), s.upload(t, text(dt), `["YQ==","","/wA="]`)), s.results("out-"+dt.Name(), text(dt), 3, triton.WithByteSize("BYTES", 64))
		got, err := s.infer("types", out, in)
		require.NoError(t, err, dt)
		check(t, got, `["QQ==","","/wA="]`)
	}
}

// Text that does not fit is an error of the server, after which the outputs may be used again.
func TestTextWithoutRoom(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	s := system.connect(t)
	schema := text(arrow.BinaryTypes.String)
	in, short := s.input("in", s.upload(t, schema, `["abc","def"]`)), s.input("short", s.upload(t, schema, `["abc"]`))
	out := s.results("out", schema, 2, triton.WithByteSize("BYTES", 13)) // two values have 14
	for range 2 {
		_, err := s.infer("types", out, in)
		assert.ErrorContains(t, err, "shared memory size specified with the request for output 'BYTES' (13 bytes) should be at least 14 bytes")
		assert.Equal(t, codes.Internal, status.Code(err))
	}
	got, err := s.infer("types", out, short)
	require.NoError(t, err)
	check(t, got, `["ABC"]`)
}

// Arrow's booleans are bits, which are copied to bytes, and back.
func TestBooleans(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	s := system.connect(t)
	schema := arrow.NewSchema([]arrow.Field{{Name: "BOOL", Type: arrow.FixedWidthTypes.Boolean}}, nil)
	in, out := s.input("in", s.upload(t, schema, `[true,false,true]`)), s.results("out", schema, 3)
	got, err := s.infer("types", out, in)
	require.NoError(t, err)
	check(t, got, `[false,true,false]`)
}

// A region is registered once for the batches of many requests, with more rows and with none.
func TestWrite(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	s := system.connect(t)
	in := s.input("in", s.upload(t, integer("a"), `[1]`), triton.WithCapacity(4096))
	out := s.results("out", integer("a"), 4)
	for _, c := range [][2]string{{`[1,2,3,4]`, `[2,3,4,5]`}, {`[7]`, `[8]`}, {`[]`, `[]`}, {`[3,2]`, `[4,3]`}} {
		require.NoError(t, in.Write(bounded(t), s.upload(t, integer("a"), c[0])))
		got, err := s.infer("next", out, in)
		require.NoError(t, err, c[0])
		check(t, got, c[1])
	}
}

// Contents that a server perhaps reads are not replaced.
func TestWriteDuringARequest(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	ctx, cancel := context.WithCancel(bounded(t))
	s := system.connect(t)
	request, failed := s.begin(ctx)
	in, batch := request.Inputs[0], s.upload(t, pair, pairColumns...)
	within.Context(t, "Write, during a request", func(ctx context.Context) error { return in.Write(ctx, batch) })
	cancel()
	assert.ErrorIs(t, <-failed, context.Canceled)
	assert.ErrorContains(t, in.Write(bounded(t), batch), "the end of a request is not known")
	s.server.resume(t)
	require.NoError(t, s.Unregister(bounded(t), in))
	require.NoError(t, in.Write(bounded(t), batch))
	require.NoError(t, s.Register(bounded(t), in))
}

// A request is built from what the server says of a model, and of itself.
func TestModel(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	s := system.connect(t)
	server, err := s.Server(bounded(t))
	require.NoError(t, err)
	assert.Subset(t, server.Extensions, []string{"system_shared_memory", "cuda_shared_memory"})
	_, err = s.Model(bounded(t), "none", "")
	assert.Equal(t, codes.NotFound, status.Code(err))
	model, err := s.Model(bounded(t), "vectors", "")
	require.NoError(t, err)
	assert.Equal(t, []triton.ModelTensor{{Name: "a", Datatype: "INT64", Shape: []int64{-1, 1}}, {Name: "b", Datatype: "FP32", Shape: []int64{-1}}}, model.Inputs)
	columns, err := model.InputSchema()
	require.NoError(t, err)
	results, err := model.OutputSchema()
	require.NoError(t, err)

	in := s.input("in", s.upload(t, columns, `[[1],[2],[3]]`, `[0.5,1.5,2.5]`))
	out := s.results("out", results, 3)
	request := &triton.Request{Model: "vectors", Inputs: []*triton.Region{in}, Outputs: []*triton.Outputs{out}}
	require.NoError(t, model.Check(request))
	got, err := s.infer("vectors", out, in)
	require.NoError(t, err)
	check(t, got, `[[2],[3],[4]]`, `[1.5,2.5,3.5]`)

	request.Inputs[0] = s.input("flat", s.upload(t, pair, pairColumns...))
	_, err = s.Infer(bounded(t), request)
	assert.Equal(t, codes.InvalidArgument, status.Code(err))
	assert.ErrorContains(t, model.Check(request), `Request.Inputs.columns["a"].shape = [3]`)
}

// A request may have inputs in host memory, and outputs in that of a GPU.
func TestBothKinds(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	s := cuda(t).connect(t)
	batch := system.upload(t, pair, pairColumns...)
	in, err := triton.NewSystemRegion(bounded(t), "in", batch)
	require.NoError(t, err)
	s.register(in)
	got, err := s.infer("next", s.results("out", pair, 3), in)
	require.NoError(t, err)
	check(t, got, `[2,3,4]`, `[1.5,2.5,3.5]`)
}
