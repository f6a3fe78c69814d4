package triton_test

import (
	"bytes"
	"context"
	"math"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/protofield"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/interop/triton"
)

func TestNewOutputsRefuses(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	for name, c := range map[string]struct {
		region string
		schema *arrow.Schema
		rows   int64
		opts   []triton.RegionOption
		want   string
	}{
		"no name":    {"", numbers, 1, nil, `name = ""`},
		"no rows":    {"o", numbers, 0, nil, "rows = 0, want at least 1"},
		"no fields":  {"o", schemaOf(), 1, nil, "schema.NumFields = 0"},
		"text":       {"o", schemaOf(field("x", arrow.BinaryTypes.String)), 1, nil, `columns["x"].type = utf8`},
		"same names": {"o", schemaOf(field("x", integers), field("x", integers)), 1, nil, `columns["x"].name = "x"`},
		"too many":   {"o", numbers, math.MaxInt64 / 4, nil, `columns["a"].shape = [2305843009213693951], want elements that fit into memory`},
		"in all":     {"o", numbers, 1 << 59, nil, `columns["b"].shape`},
		"a shape":    {"o", numbers, 1, []triton.RegionOption{triton.WithShape("a", 1)}, `WithShape = "a", want no shape`},
		"device":     {"o", numbers, 1, []triton.RegionOption{triton.WithDeviceID(-1)}, "WithDeviceID = -1"},
		"memory":     {"o", numbers, 1 << 50, nil, `region "o": `},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := triton.NewOutputs(background, c.region, m.GPUs[0], c.schema, c.rows, c.opts...)
			assert.ErrorContains(t, err, c.want)
		})
	}
	_, err := triton.NewOutputs(background, "o", device.CPUDevice(), numbers, 1)
	assert.ErrorContains(t, err, "gpu = a device.host, want a device whose memory other processes can open")
	assert.ErrorIs(t, err, device.ErrNotSupported)
}

// A batch is only made of a response that has each output, in the region.
func TestBatchRefuses(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	o := outputsOf(t, m, "o", schemaOf(field("x", arrow.FixedSizeListOf(2, integers)), field("y", arrow.PrimitiveTypes.Float32)), 3)
	good := func() *triton.Response {
		return &triton.Response{Outputs: []triton.OutputTensor{{Name: "y", Datatype: "FP32", Shape: []int64{3}}, {Name: "x", Datatype: "INT64", Shape: []int64{3, 2}}}}
	}
	for name, c := range map[string]struct {
		change func(y, x *triton.OutputTensor)
		want   string
	}{
		"absent":       {func(y, x *triton.OutputTensor) { x.Name = "z" }, `Response.outputs["x"].name = absent, want an output for each field`},
		"type":         {func(y, x *triton.OutputTensor) { y.Datatype = "FP64" }, `Response.outputs["y"].datatype = "FP64", want "FP32"`},
		"more rows":    {func(y, x *triton.OutputTensor) { x.Shape = []int64{4, 2} }, `Response.outputs["x"].shape = [4 2], want at most [3 2]`},
		"half rows":    {func(y, x *triton.OutputTensor) { x.Shape = []int64{5} }, `Response.outputs["x"].shape = [5]`},
		"other rows":   {func(y, x *triton.OutputTensor) { y.Shape = []int64{2} }, `Response.outputs["y"].rows = 2, want 3, the rows of the other outputs`},
		"negative":     {func(y, x *triton.OutputTensor) { x.Shape = []int64{-1, -2} }, `Response.outputs["x"].shape = [-1 -2]`},
		"overflow":     {func(y, x *triton.OutputTensor) { x.Shape = []int64{1 << 62, 1 << 62, 4} }, `Response.outputs["x"].shape`},
		"bytes below":  {func(y, x *triton.OutputTensor) { y.Region, y.Offset, y.ByteSize = "o", 256, 11 }, `Response.outputs["y"].byte_size = 11, want 12 to 12`},
		"bytes beyond": {func(y, x *triton.OutputTensor) { y.Region, y.Offset, y.ByteSize = "o", 256, 1<<62 }, `Response.outputs["y"].byte_size = 46116860`},
		"bytes -1":     {func(y, x *triton.OutputTensor) { y.Region, y.Offset, y.ByteSize = "o", 256, -1 }, `Response.outputs["y"].byte_size = -1`},
		"turned":       {func(y, x *triton.OutputTensor) { x.Shape = []int64{2, 3} }, `Response.outputs["x"].shape = [2 3], want at most [3 2]`},
		"flat":         {func(y, x *triton.OutputTensor) { x.Shape = []int64{6} }, `Response.outputs["x"].shape = [6]`},
		"twice":        {func(y, x *triton.OutputTensor) { y.Name = "x" }, `Response.outputs["x"].name = there twice, want one output`},
		"scalar":       {func(y, x *triton.OutputTensor) { y.Shape = nil }, `Response.outputs["y"].shape = []`},
		"contents":     {func(y, x *triton.OutputTensor) { y.Contents = make([]byte, 12) }, `Response.outputs["y"].contents = 12 bytes`},
		"elsewhere":    {func(y, x *triton.OutputTensor) { y.Region = "p" }, `Response.outputs["y"].region = "p" at 0`},
		"other offset": {func(y, x *triton.OutputTensor) { y.Region, y.Offset = "o", 4 }, `Response.outputs["y"].region = "o" at 4, want "o" at 256`},
	} {
		t.Run(name, func(t *testing.T) {
			r := good()
			c.change(&r.Outputs[0], &r.Outputs[1])
			_, err := o.Batch(r)
			assert.ErrorContains(t, err, c.want)
			assert.ErrorIs(t, err, arrow.ErrInvalid)
		})
	}
	for rows, r := range map[int64]*triton.Response{
		3: good(),
		2: {Outputs: []triton.OutputTensor{{Name: "x", Datatype: "INT64", Shape: []int64{1, 2, 2}}, {Name: "y", Datatype: "FP32", Shape: []int64{2, 1}, Region: "o", Offset: 256}}},
		0: {Outputs: []triton.OutputTensor{{Name: "x", Datatype: "INT64", Shape: []int64{0, 2}}, {Name: "y", Datatype: "FP32", Shape: []int64{0}}}},
	} {
		batch, err := o.Batch(r)
		require.NoError(t, err)
		assert.Equal(t, rows, batch.NumRows())
		batch.Release()
	}
	o.Region().Close()
	_, err := o.Batch(good())
	assert.ErrorContains(t, err, `Region("o"): `)
}

// A response that is cut or changed anywhere is an error, or another response; it never panics.
func TestResponseTakesAnything(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	_, f, c, r := setUp(t)
	infer := func(message []byte) (*triton.Response, error) {
		f.answer["ModelInfer"] = func(context.Context, []byte) ([]byte, error) { return message, nil }
		return c.Infer(background, &triton.Request{Model: "m", Inputs: []*triton.Region{r}})
	}
	output := protofield.AppendBytes(nil, 1, "x")
	output = protofield.AppendInt(output, 3, 7) // not packed
	output = protofield.AppendInts(output, 3, []int64{2, 3})
	output = protowire.AppendFixed32(protowire.AppendTag(output, 99, protowire.Fixed32Type), 1)
	for key, value := range map[string][]byte{
		"shared_memory_region": protofield.AppendBytes(nil, 3, "o"), "shared_memory_byte_size": protofield.AppendInt(nil, 2, 4),
		"shared_memory_offset": protofield.AppendInt(nil, 5, 8), "classification": nil,
	} {
		output = protofield.AppendMessage(output, 4, protofield.AppendMessage(protofield.AppendBytes(nil, 1, key), 2, value))
	}
	message := protofield.AppendBytes(protofield.AppendMessage(nil, 5, output), 6, "raw")
	got, err := infer(message)
	require.NoError(t, err)
	assert.Equal(t, []triton.OutputTensor{{Name: "x", Shape: []int64{7, 2, 3}, Region: "o", Offset: 8, ByteSize: 4, Contents: []byte("raw")}}, got.Outputs)

	for i := range message {
		_, _ = infer(message[:i])
		for _, b := range []byte{0, 1, 0x7f, 0x80, 0xff} {
			changed := bytes.Clone(message)
			changed[i] = b
			_, _ = infer(changed)
		}
	}
	for want, message := range map[string][]byte{
		"ModelInferResponse = field 6 is cut off":                      message[:len(message)-1],
		"ModelInferResponse.raw_output_contents = 1, want at most one": protofield.AppendBytes(nil, 6, "raw"),
		"outputs.contents = typed values, want raw_output_contents":    {5<<3 | 2, 3, 5<<3 | 2, 1, 0},
		"outputs.shape = a number is cut off":                          {5<<3 | 2, 3, 3<<3 | 2, 1, 0x80},
		"ModelInferResponse.outputs = more, want at most 65536":        bytes.Repeat([]byte{5<<3 | 2, 0}, 1<<16+1),
	} {
		_, err := infer(message)
		assert.ErrorContains(t, err, "triton: infer: ")
		assert.ErrorContains(t, err, want)
	}
}

// A second Close of a region frees nothing: its batches retain the memory.
func TestCloseTwice(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	o := outputsOf(t, m, "o", schemaOf(field("x", integers)), 3)
	batch, err := o.Batch(&triton.Response{Outputs: []triton.OutputTensor{{Name: "x", Datatype: "INT64", Shape: []int64{3}}}})
	require.NoError(t, err)
	for range 3 {
		o.Region().Close()
	}
	require.NoError(t, gpu.Flush(background))
	assert.NotZero(t, gpu.ReadStats().Device.Live, "the batch has it")
	batch.Release()
	require.NoError(t, gpu.Flush(background))
	assert.Zero(t, gpu.ReadStats().Device.Live)
}

// A batch is only made of the response to the last request, when that has ended.
func TestBatchOfAnotherRequest(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m, f, c, r := setUp(t)
	o, other := outputsOf(t, m, "o", schemaOf(field("x", integers)), 3), outputsOf(t, m, "other", schemaOf(field("y", integers)), 3)
	register(t, c, o.Region(), other.Region())
	request := &triton.Request{Model: "m", Inputs: []*triton.Region{r}, Outputs: []*triton.Outputs{o}}
	message := protofield.AppendBytes(protofield.AppendBytes(nil, 1, "x"), 2, "INT64")
	message = protofield.AppendMessage(nil, 5, protofield.AppendInts(message, 3, []int64{2}))
	f.answer["ModelInfer"] = func(context.Context, []byte) ([]byte, error) { return message, nil }
	infer := func(outputs ...*triton.Outputs) *triton.Response {
		response, err := c.Infer(background, &triton.Request{Model: "m", Inputs: []*triton.Region{r}, Outputs: outputs})
		require.NoError(t, err)
		return response
	}
	refused := func(response *triton.Response, want string) {
		t.Helper()
		_, err := o.Batch(response)
		assert.ErrorContains(t, err, want)
		assert.ErrorIs(t, err, arrow.ErrInvalid)
	}
	const ofAnother = `triton: batch: Response = of another request, want that of the last request with outputs "o"`
	first := infer(o)
	batch, err := o.Batch(first)
	require.NoError(t, err)
	batch.Release()
	last := infer(o)
	refused(first, ofAnother)
	refused(infer(other), ofAnother)
	refused(infer(), ofAnother)
	canceled, cancel := context.WithCancel(background)
	cancel()
	_, err = c.Infer(canceled, request) // which is not sent
	require.ErrorIs(t, err, context.Canceled)
	batch, err = o.Batch(last)
	require.NoError(t, err)
	batch.Release()

	entered, open, ended := make(chan bool), make(chan bool), make(chan error, 1)
	f.answer["ModelInfer"] = func(context.Context, []byte) ([]byte, error) {
		entered <- true
		<-open
		return nil, status.Error(codes.DeadlineExceeded, "no")
	}
	go func() { _, err := c.Infer(background, request); ended <- err }()
	<-entered
	made := &triton.Response{Outputs: last.Outputs}
	refused(last, `triton: batch: Outputs("o") = in use by a request`)
	refused(made, `triton: batch: Outputs("o") = in use by a request`)
	close(open)
	assert.Error(t, <-ended)
	refused(made, `triton: batch: Outputs("o") = perhaps still written to`)
	require.NoError(t, c.Unregister(background, o.Region()))
	refused(last, ofAnother)
	batch, err = o.Batch(made)
	require.NoError(t, err)
	batch.Release()
}

// A response that describes no batch does not keep outputs from the next request.
func TestRefusedBatchesDoNotCount(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m, _, c, r := setUp(t)
	o := outputsOf(t, m, "o", numbers, 3)
	register(t, c, o.Region())
	request := &triton.Request{Model: "m", Inputs: []*triton.Region{r}, Outputs: []*triton.Outputs{o}}
	response, err := c.Infer(background, request)
	require.NoError(t, err)
	_, err = o.Batch(response)
	assert.ErrorContains(t, err, "want an output for each field")
	within.Seconds(t, "Infer", func() error { _, err := c.Infer(background, request); return err })
}
