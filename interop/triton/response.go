package triton

import (
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// A Response is the server's answer to a Request.
type Response struct {
	Model, Version, ID string
	Outputs            []OutputTensor
}

// An OutputTensor describes an output of the model.
type OutputTensor struct {
	Name, Datatype string
	Shape          []int64
	// Region, Offset and ByteSize are where the server says that the output is; Region is empty if it does not say so.
	Region           string
	Offset, ByteSize int64
	// Contents are the elements of an output that is in no region.
	Contents []byte
}

// maxOutputs bounds the outputs of a response: an empty one takes two bytes of the message, and 150 here.
const maxOutputs = 1 << 16

// ParseResponse reads a message inference.ModelInferResponse. It checks the message, and not whether it has the
// outputs of a request: see [Outputs.Batch]. The result shares no memory with it.
func ParseResponse(message []byte) (*Response, error) {
	r := &Response{}
	var contents [][]byte
	err := eachField("ModelInferResponse", message, func(f field) error {
		switch f.number {
		case 1:
			r.Model = string(f.bytes)
		case 2:
			r.Version = string(f.bytes)
		case 3:
			r.ID = string(f.bytes)
		case 5:
			if len(r.Outputs) == maxOutputs {
				return fielderr.Invalid(opTriton, pathOutput, fielderr.Text("more"), fmt.Sprintf("at most %d", maxOutputs))
			}
			t, err := parseOutput(f.bytes)
			r.Outputs = append(r.Outputs, t)
			return err
		case 6:
			contents = append(contents, f.bytes)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(contents) > len(r.Outputs) {
		return nil, fielderr.Invalid(opTriton, "ModelInferResponse.raw_output_contents", len(contents), "at most one for each output")
	}
	for i, c := range contents {
		if len(c) > 0 {
			r.Outputs[i].Contents = append([]byte(nil), c...)
		}
	}
	return r, nil
}

const pathOutput = "ModelInferResponse.outputs"

func parseOutput(message []byte) (t OutputTensor, err error) {
	err = eachField(pathOutput, message, func(f field) (err error) {
		switch f.number {
		case 1:
			t.Name = string(f.bytes)
		case 2:
			t.Datatype = string(f.bytes)
		case 3:
			t.Shape, err = f.shape(pathOutput+".shape", t.Shape)
		case 4:
			err = t.parseParameter(f.bytes)
		case 5:
			if len(f.bytes) > 0 {
				err = fielderr.New(opTriton, pathOutput+".contents", fielderr.Text("typed values"), "raw_output_contents, as Triton makes them", arrow.ErrNotImplemented)
			}
		}
		return err
	})
	return t, err
}

// parseParameter reads an entry of the map of parameters.
func (t *OutputTensor) parseParameter(message []byte) error {
	var key string
	var value []byte
	err := eachField(pathOutput+".parameters", message, func(f field) error {
		switch f.number {
		case 1:
			key = string(f.bytes)
		case 2:
			value = f.bytes
		}
		return nil
	})
	if err != nil || !strings.HasPrefix(key, "shared_memory_") {
		return err
	}
	return eachField(pathOutput+".parameters", value, func(f field) error {
		switch {
		case key == paramRegion && f.number == 3:
			t.Region = string(f.bytes)
		case key == paramByteSize && (f.number == 2 || f.number == 5):
			t.ByteSize = int64(f.number64)
		case key == paramOffset && (f.number == 2 || f.number == 5):
			t.Offset = int64(f.number64)
		}
		return nil
	})
}
