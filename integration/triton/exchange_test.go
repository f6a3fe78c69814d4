package triton

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/interop/triton"
)

// Each type goes to the server and comes back as the following values, which the server computes of what it reads.
func TestEachType(t *testing.T) {
	p := arrow.PrimitiveTypes
	cases := map[string]struct {
		dt           arrow.DataType
		values, want string // of the second to the fourth of five rows
		datatype     string
	}{
		"int8": {p.Int8, `0,-2,5,126,0`, `-1,6,127`, "INT8"}, "uint8": {p.Uint8, `0,0,5,254,0`, `1,6,255`, "UINT8"},
		"int16": {p.Int16, `0,-2,5,32766,0`, `-1,6,32767`, "INT16"}, "uint16": {p.Uint16, `0,0,5,65534,0`, `1,6,65535`, "UINT16"},
		"int32": {p.Int32, `0,-2,5,2147483646,0`, `-1,6,2147483647`, "INT32"}, "uint32": {p.Uint32, `0,0,5,4294967294,0`, `1,6,4294967295`, "UINT32"},
		"int64": {p.Int64, `0,-2,5,9007199254740992,0`, `-1,6,9007199254740993`, "INT64"}, "uint64": {p.Uint64, `0,0,5,7,0`, `1,6,8`, "UINT64"},
		"float16": {arrow.FixedWidthTypes.Float16, `0,-2,5,0.5,0`, `-1,6,1.5`, "FP16"}, "float32": {p.Float32, `0,-2,5,0.5,0`, `-1,6,1.5`, "FP32"},
		"float64":   {p.Float64, `0,-2,5,0.5,0`, `-1,6,1.5`, "FP64"},
		"bool8":     {extensions.NewBool8Type(), `true,false,true,false,true`, `true,false,true`, "BOOL"},
		"timestamp": {&arrow.TimestampType{Unit: arrow.Second}, `"2026-01-01 00:00:00","2026-01-01 00:00:01","2026-01-01 00:00:59","2026-01-01 00:00:03","2026-01-01 00:00:00"`, `"2026-01-01T00:00:02","2026-01-01T00:01:00","2026-01-01T00:00:04"`, "INT64"},
		"list":      {arrow.FixedSizeListOf(2, p.Int16), `[0,0],[1,2],[3,4],[5,6],[0,0]`, `[2,3],[4,5],[6,7]`, "INT16"},
		"nested":    {arrow.FixedSizeListOf(2, arrow.FixedSizeListOf(1, p.Float32)), `[[0],[0]],[[1],[2]],[[3],[4]],[[5],[6]],[[0],[0]]`, `[[2],[3]],[[4],[5]],[[6],[7]]`, "FP32"},
	}
	inEachMemory(t, func(t *testing.T, p place) {
		s := p.connect(t)
		for name, c := range cases {
			column, isList := map[string]string{"list": "pairs", "nested": "nested"}[name]
			if !isList {
				column = c.datatype
			}
			schema := arrow.NewSchema([]arrow.Field{{Name: column, Type: c.dt}}, nil)
			part, err := p.upload(t, schema, "["+c.values+"]").Slice(1, 4)
			require.NoError(t, err, name)
			in, out := s.input("in-"+name, part), s.results("out-"+name, schema, 3)
			part.Release()
			assert.Equal(t, c.datatype, in.Tensors()[0].Datatype, name)
			got, err := s.infer("types", out, in)
			require.NoError(t, err, name)
			check(t, got, "["+c.want+"]")
		}
	})
}

var (
	pair = arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}, {Name: "b", Type: arrow.PrimitiveTypes.Float32}}, nil)
	one  = arrow.NewSchema([]arrow.Field{{Name: "c", Type: arrow.PrimitiveTypes.Uint8}}, nil)

	pairColumns = []string{`[1,2,3]`, `[0.5,1.5,2.5]`}
)

// The generated classes of Triton's client see the fields as they were meant.
func TestServerSeesTheFields(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	p := cuda(t)
	s := p.connect(t, "sees")
	in := s.input("features", p.upload(t, pair, pairColumns...), triton.WithDeviceID(1), triton.WithShape("a", 3, 1))
	registered := s.sees()
	assert.Len(t, registered["raw_handle"], base64.StdEncoding.EncodedLen(64)) // which the server has opened
	delete(registered, "raw_handle")
	assert.Equal(t, map[string]any{"name": "features", "device_id": "1", "byte_size": number(in.ByteSize())}, registered)
	out := s.results("scores", pair, 3)
	s.sees()
	response, err := s.Infer(bounded(t), &triton.Request{Model: "vectors", Version: "1", ID: "q", Inputs: []*triton.Region{in}, Outputs: []*triton.Outputs{out}})
	require.NoError(t, err)
	place := func(region string, tensor triton.Tensor) map[string]any {
		p := map[string]any{
			"shared_memory_region":    map[string]any{"string_param": region},
			"shared_memory_byte_size": map[string]any{"int64_param": number(tensor.ByteSize)},
		}
		if tensor.Offset != 0 {
			p["shared_memory_offset"] = map[string]any{"int64_param": number(tensor.Offset)}
		}
		return p
	}
	from, to := in.Tensors(), out.Region().Tensors()
	assert.Equal(t, map[string]any{
		"model_name": "vectors", "model_version": "1", "id": "q",
		"inputs": []any{
			map[string]any{"name": "a", "datatype": "INT64", "shape": []any{"3", "1"}, "parameters": place("features", from[0])},
			map[string]any{"name": "b", "datatype": "FP32", "shape": []any{"3"}, "parameters": place("features", from[1])},
		},
		"outputs": []any{
			map[string]any{"name": "a", "parameters": place("scores", to[0])},
			map[string]any{"name": "b", "parameters": place("scores", to[1])},
		},
	}, s.sees())
	assert.Equal(t, "q", response.ID)
	assert.Equal(t, "vectors", response.Model)
	assert.Equal(t, "1", response.Version)
	assert.ElementsMatch(t, []triton.OutputTensor{ // in any order
		{Name: "a", Datatype: "INT64", Shape: []int64{3, 1}}, {Name: "b", Datatype: "FP32", Shape: []int64{3}},
	}, response.Outputs)
	got, err := out.Batch(response)
	require.NoError(t, err)
	check(t, got, `[2,3,4]`, `[1.5,2.5,3.5]`)
}

// sees returns the next message that the proxy has received.
func (s *session) sees() (message map[string]any) {
	s.t.Helper()
	require.NoError(s.t, json.Unmarshal([]byte(s.proxy.expect(s.t, "sees")), &message))
	return message
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// A request may take inputs from several regions, and outputs may be in several, which are used again.
func TestSeveralRegions(t *testing.T) {
	inEachMemory(t, func(t *testing.T, p place) {
		s := p.connect(t)
		inputs := []*triton.Region{s.input("in1", p.upload(t, pair, pairColumns...)), s.input("in2", p.upload(t, one, `[1,2,3]`))}
		outputs := []*triton.Outputs{s.results("out1", pair, 3), s.results("out2", one, 3)}
		request := &triton.Request{Model: "next", Inputs: inputs, Outputs: outputs}
		for range 3 {
			response, err := s.Infer(bounded(t), request)
			require.NoError(t, err)
			first, err := outputs[0].Batch(response)
			require.NoError(t, err)
			second, err := outputs[1].Batch(response)
			require.NoError(t, err)
			within.Context(t, "Infer, while a batch is not released", func(ctx context.Context) error {
				_, err := s.Infer(ctx, request)
				assert.ErrorContains(t, err, `a batch of outputs "out1" is not released`)
				return err
			})
			check(t, first, `[2,3,4]`, `[1.5,2.5,3.5]`)
			check(t, second, `[2,3,4]`)
		}
		// The outputs of one request are the inputs of the next.
		last := s.results("out3", pair, 3)
		response, err := s.Infer(bounded(t), &triton.Request{Model: "next", Inputs: []*triton.Region{outputs[0].Region()}, Outputs: []*triton.Outputs{last}})
		require.NoError(t, err)
		got, err := last.Batch(response)
		require.NoError(t, err)
		check(t, got, `[3,4,5]`, `[2.5,3.5,4.5]`)
	})
}
