package triton_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/internal/protofield"
	"github.com/arrowdevice/arrowdevice/interop/triton"
)

// modelTensor is a message ModelMetadataResponse.TensorMetadata.
func modelTensor(name, datatype string, shape ...int64) []byte {
	return protofield.AppendInts(protofield.AppendBytes(protofield.AppendBytes(nil, 1, name), 2, datatype), 3, shape)
}

// The messages have the fields of Triton's.
func TestMetadata(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	_, f, c, _ := setUp(t)
	var asked []byte
	f.answer["ModelMetadata"] = func(_ context.Context, message []byte) ([]byte, error) {
		asked = message
		b := protofield.AppendBytes(protofield.AppendBytes(nil, 1, "m"), 2, "1")
		b = protofield.AppendBytes(protofield.AppendBytes(b, 2, "2"), 3, "python")
		b = protofield.AppendMessage(b, 4, modelTensor("x", "FP32", -1, 2))
		return protofield.AppendMessage(protofield.AppendMessage(b, 5, modelTensor("y", "BYTES")), 99, nil), nil
	}
	m, err := c.Model(background, "m", "2")
	require.NoError(t, err)
	assert.Equal(t, &triton.Model{
		Name: "m", Versions: []string{"1", "2"}, Platform: "python",
		Inputs: []triton.ModelTensor{{Name: "x", Datatype: "FP32", Shape: []int64{-1, 2}}}, Outputs: []triton.ModelTensor{{Name: "y", Datatype: "BYTES"}},
	}, m)
	assert.Equal(t, protofield.AppendBytes(protofield.AppendBytes(nil, 1, "m"), 2, "2"), asked)
	f.answer["ServerMetadata"] = func(_ context.Context, message []byte) ([]byte, error) {
		assert.Empty(t, message)
		b := protofield.AppendBytes(protofield.AppendBytes(nil, 1, "triton"), 2, "2.51.0")
		return protofield.AppendBytes(protofield.AppendBytes(b, 3, "statistics"), 3, "trace"), nil
	}
	s, err := c.Server(background)
	require.NoError(t, err)
	assert.Equal(t, &triton.Server{Name: "triton", Version: "2.51.0", Extensions: []string{"statistics", "trace"}}, s)
	_, err = c.Model(background, "", "")
	assert.ErrorContains(t, err, `triton: metadata: name = ""`)
	_, err = c.Model(background, "m", "\xff")
	assert.ErrorContains(t, err, `triton: metadata: version = "\xff", want UTF-8`)
}

// Metadata that is cut or changed anywhere is an error, or other metadata; lists are bounded.
func TestMetadataTakesAnything(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	_, f, c, _ := setUp(t)
	var message []byte
	answer := func(context.Context, []byte) ([]byte, error) { return message, nil }
	f.answer["ModelMetadata"], f.answer["ServerMetadata"] = answer, answer
	model := func() error { _, err := c.Model(background, "m", ""); return err }
	server := func() error { _, err := c.Server(background); return err }
	good := protofield.AppendMessage(protofield.AppendMessage(nil, 4, modelTensor("x", "FP32", -1, 2)), 5, modelTensor("y", "FP32", -1))
	for i := range good {
		for _, b := range []byte{0, 1, 0x7f, 0x80, 0xff} {
			message = bytes.Clone(good)
			message[i] = b
			_, _ = model(), server()
		}
		message = good[:i]
		_, _ = model(), server()
	}
	many := func(field byte) []byte { return bytes.Repeat([]byte{field<<3 | 2, 0}, 1<<16+1) }
	for want, c := range map[string]struct {
		call    func() error
		message []byte
	}{
		"ModelMetadataResponse = field 5 is cut off":                          {model, good[:len(good)-1]},
		"ModelMetadataResponse.inputs.shape = a number is cut off":            {model, []byte{4<<3 | 2, 3, 3<<3 | 2, 1, 0x80}},
		`ModelMetadataResponse.inputs["x"].shape = [-2], want dimensions`:     {model, protofield.AppendMessage(nil, 4, modelTensor("x", "FP32", -2))},
		"ModelMetadataResponse.versions = more, want at most 65536":           {model, many(2)},
		"ModelMetadataResponse.inputs = more, want at most 65536":             {model, many(4)},
		"ModelMetadataResponse.outputs = more, want at most 65536":            {model, many(5)},
		"ServerMetadataResponse.extensions = more, want at most 65536":        {server, many(3)},
		"ServerMetadataResponse = a number is cut off or too large":           {server, []byte{0xff}},
		"ServerMetadataResponse = field 1 is cut off: of its 2 bytes, 1 are ": {server, []byte{1<<3 | 2, 2, 'a'}},
	} {
		message = c.message
		err := c.call()
		assert.ErrorContains(t, err, "triton: metadata: "+want)
		assert.ErrorIs(t, err, arrow.ErrInvalid)
	}
}

// A request that does not fit the model is refused without a call.
func TestModelChecksRequests(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	machine, f, _, in := setUp(t) // a: int64, b: float32, of three rows
	pairs := schemaOf(field("y", arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Float64)))
	out := outputsOf(t, machine, "o", pairs, 3)
	good := func() *triton.Model {
		return &triton.Model{
			Name:    "m",
			Inputs:  []triton.ModelTensor{{Name: "a", Datatype: "INT64", Shape: []int64{-1}}, {Name: "b", Datatype: "FP32", Shape: []int64{3}}},
			Outputs: []triton.ModelTensor{{Name: "y", Datatype: "FP64", Shape: []int64{-1, 2}}, {Name: "z", Datatype: "FP64"}},
		}
	}
	request := func() *triton.Request {
		return &triton.Request{Model: "m", Inputs: []*triton.Region{in}, Outputs: []*triton.Outputs{out}}
	}
	for want, change := range map[string]func(m *triton.Model, r *triton.Request){
		`Request.Model = "n", want "m"`: func(m *triton.Model, r *triton.Request) { r.Model = "n" },
		`Request.Inputs = 0`:            func(m *triton.Model, r *triton.Request) { r.Inputs = nil },
		`Request.Inputs.columns["c"].name = absent, want all inputs of the model`: func(m *triton.Model, r *triton.Request) {
			m.Inputs = append(m.Inputs, triton.ModelTensor{Name: "c"})
		},
		`Request.Inputs.columns["b"].name = "b", want one of ["a"]`:                      func(m *triton.Model, r *triton.Request) { m.Inputs = m.Inputs[:1] },
		`Request.Inputs.columns["a"].datatype = "INT64", want "INT32"`:                   func(m *triton.Model, r *triton.Request) { m.Inputs[0].Datatype = "INT32" },
		`Request.Inputs.columns["b"].shape = [3], want [4], where -1 is any`:             func(m *triton.Model, r *triton.Request) { m.Inputs[1].Shape = []int64{4} },
		`Request.Inputs.columns["a"].shape = [3], want [-1 1], where -1 is any`:          func(m *triton.Model, r *triton.Request) { m.Inputs[0].Shape = []int64{-1, 1} },
		`Request.Outputs.columns["y"].name = "y", want one of ["z"]`:                     func(m *triton.Model, r *triton.Request) { m.Outputs = m.Outputs[1:] },
		`Request.Outputs.columns["y"].datatype = "FP64", want "FP32"`:                    func(m *triton.Model, r *triton.Request) { m.Outputs[0].Datatype = "FP32" },
		`Request.Outputs.columns["y"].shape = [3 2], want [-1 3], where -1 is any`:       func(m *triton.Model, r *triton.Request) { m.Outputs[0].Shape = []int64{-1, 3} },
		`Request.Outputs.columns["y"].shape = [3 2], want [1], where -1 is any`:          func(m *triton.Model, r *triton.Request) { m.Outputs[0].Shape = []int64{1} },
		`Request.Outputs.columns["y"].shape = [3 2], want [-1 2 1 3 1], where -1 is any`: func(m *triton.Model, r *triton.Request) { m.Outputs[0].Shape = []int64{-1, 2, 1, 3, 1} },
	} {
		m, r := good(), request()
		change(m, r)
		err := m.Check(r)
		assert.ErrorContains(t, err, "triton: model: "+want)
		assert.ErrorIs(t, err, arrow.ErrInvalid)
	}
	assert.NoError(t, good().Check(request()))
	for _, shape := range [][]int64{{-1, 2, 1}, {-1, -1}, {3, 2}, {6, 2}} {
		m := good()
		m.Outputs[0].Shape = shape
		assert.NoError(t, m.Check(request()), "%v", shape)
	}
	assert.Empty(t, f.calls)
}

// The schemas of a model are those of its tensors.
func TestModelSchemas(t *testing.T) {
	m := &triton.Model{
		Inputs: []triton.ModelTensor{{Name: "x", Datatype: "FP32", Shape: []int64{-1, 2, 3}}, {Name: "s", Datatype: "BYTES", Shape: []int64{4}}},
		Outputs: []triton.ModelTensor{
			{Name: "INT8"}, {Name: "INT16"}, {Name: "INT32"}, {Name: "INT64"}, {Name: "UINT8"}, {Name: "UINT16"}, {Name: "UINT32"}, {Name: "UINT64"},
			{Name: "FP16"}, {Name: "FP64"}, {Name: "BOOL"},
		},
	}
	for i := range m.Outputs {
		m.Outputs[i].Datatype, m.Outputs[i].Shape = m.Outputs[i].Name, []int64{-1}
	}
	in, err := m.InputSchema()
	require.NoError(t, err)
	lists := arrow.FixedSizeListOfNonNullable(2, arrow.FixedSizeListOfNonNullable(3, arrow.PrimitiveTypes.Float32))
	assert.True(t, in.Equal(schemaOf(arrow.Field{Name: "x", Type: lists}, arrow.Field{Name: "s", Type: arrow.BinaryTypes.Binary})), "%s", in)
	out, err := m.OutputSchema()
	require.NoError(t, err)
	for i, dt := range []arrow.DataType{
		arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64,
		arrow.PrimitiveTypes.Uint8, arrow.PrimitiveTypes.Uint16, arrow.PrimitiveTypes.Uint32, arrow.PrimitiveTypes.Uint64,
		arrow.FixedWidthTypes.Float16, arrow.PrimitiveTypes.Float64, arrow.FixedWidthTypes.Boolean,
	} {
		assert.Equal(t, arrow.Field{Name: m.Outputs[i].Name, Type: dt}, out.Field(i))
	}
	for want, bad := range map[string]triton.ModelTensor{
		`Model.Outputs["x"].datatype = "BF16", want a type that Arrow has`: {Name: "x", Datatype: "BF16", Shape: []int64{-1}},
		`Model.Outputs["x"].shape = [], want a dimension for the rows`:     {Name: "x", Datatype: "FP32"},
		`Model.Outputs["x"].shape = [-1 -1], want sizes of all dimensions`: {Name: "x", Datatype: "FP32", Shape: []int64{-1, -1}},
		`Model.Outputs["x"].shape = [-1 0], want sizes of all dimensions`:  {Name: "x", Datatype: "FP32", Shape: []int64{-1, 0}},
		`Model.Outputs["x"].shape = [1 2147483648], want sizes of all dim`: {Name: "x", Datatype: "FP32", Shape: []int64{1, 1 << 31}},
	} {
		_, err := (&triton.Model{Outputs: []triton.ModelTensor{bad}}).OutputSchema()
		assert.ErrorContains(t, err, "triton: model: "+want)
	}
}
