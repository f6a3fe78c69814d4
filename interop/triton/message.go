package triton

import (
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/protofield"
)

// registerMessage returns the message CudaSharedMemoryRegisterRequest or SystemSharedMemoryRegisterRequest, whose offset is 0. Its
// response has no fields.
func registerMessage(r *Region) []byte {
	b := protofield.AppendBytes(nil, 1, r.name)
	if r.object != nil {
		return protofield.AppendInt(protofield.AppendBytes(b, 2, r.object.key), 4, r.byteSize)
	}
	b = protofield.AppendBytes(b, 2, r.handle[:])
	b = protofield.AppendInt(b, 3, r.deviceID)
	return protofield.AppendInt(b, 4, r.byteSize)
}

// nameMessage returns the message CudaSharedMemoryUnregisterRequest, or CudaSharedMemoryStatusRequest, or those of
// SystemSharedMemory, which have the same field.
func nameMessage(name string) []byte { return protofield.AppendBytes(nil, 1, name) }

// message returns the message ModelInferRequest of a request that was checked.
func (r *Request) message() []byte {
	b := protofield.AppendBytes(nil, 1, r.Model)
	b = protofield.AppendBytes(b, 2, r.Version)
	b = protofield.AppendBytes(b, 3, r.ID)
	for _, region := range r.Inputs {
		for _, t := range region.current() {
			b = protofield.AppendMessage(b, 5, input(region.name, t))
		}
	}
	for _, out := range r.Outputs {
		for _, t := range out.region.current() {
			b = protofield.AppendMessage(b, 6, output(out.region.name, t))
		}
	}
	return b
}

// input returns the message ModelInferRequest.InferInputTensor.
func input(region string, t Tensor) []byte {
	b := protofield.AppendBytes(nil, 1, t.Name)
	b = protofield.AppendBytes(b, 2, t.Datatype)
	b = protofield.AppendInts(b, 3, t.Shape)
	return appendPlace(b, 4, region, t)
}

// output returns the message ModelInferRequest.InferRequestedOutputTensor.
func output(region string, t Tensor) []byte {
	return appendPlace(protofield.AppendBytes(nil, 1, t.Name), 2, region, t)
}

// The parameters of a tensor in a region.
const (
	paramRegion   = "shared_memory_region"
	paramByteSize = "shared_memory_byte_size"
	paramOffset   = "shared_memory_offset"
)

// appendPlace appends the map of parameters that locates a tensor.
func appendPlace(b []byte, n protofield.Number, region string, t Tensor) []byte {
	entry := func(key string, value []byte) {
		b = protofield.AppendMessage(b, n, protofield.AppendMessage(protofield.AppendBytes(nil, 1, key), 2, value))
	}
	entry(paramRegion, protofield.AppendBytes(nil, 3, region))
	entry(paramByteSize, protofield.AppendChoice(nil, 2, t.ByteSize))
	if t.Offset != 0 {
		entry(paramOffset, protofield.AppendChoice(nil, 2, t.Offset))
	}
	return b
}

// eachField calls do for each field of a message that was received.
func eachField(name string, message []byte, do func(protofield.Field) error) error {
	for f, err := range protofield.Fields(message) {
		if err != nil {
			return malformed(name, err)
		}
		if err := do(f); err != nil {
			return err
		}
	}
	return nil
}

func malformed(name string, err error) error {
	return fielderr.Invalid(opInfer, name, fielderr.Text(err.Error()), "a protobuf message")
}

// A listing is what a server lists under the name of an entry.
type listing int

const (
	absent  listing = iota
	itself          // the memory of the entry
	another         // other memory
)

// parseListing reads a message CudaSharedMemoryStatusResponse or SystemSharedMemoryStatusResponse: a map of messages RegionStatus.
func parseListing(message []byte, e entry) (found listing, err error) {
	path := e.kind.method("StatusResponse")
	err = eachField(path, message, func(f protofield.Field) error {
		if f.Number != 1 {
			return nil
		}
		var name string
		same := true
		err := eachField(path+".regions", f.Bytes, func(f protofield.Field) (err error) {
			switch f.Number {
			case 1:
				name = string(f.Bytes)
			case 2:
				same, err = e.same(path+".regions", f.Bytes)
			}
			return err
		})
		switch {
		case name != e.name:
		case same:
			found = itself
		default:
			found = another
		}
		return err
	})
	return found, err
}

// isSame compares the memory of a message RegionStatus with that of the region: the key of system shared memory, which no other has,
// or the size and the GPU of CUDA shared memory. Fields that are absent are not compared.
func (r *Region) isSame(path string, status []byte) (same bool, err error) {
	same = true
	err = eachField(path, status, func(f protofield.Field) error {
		switch {
		case r.object != nil && f.Number == 2:
			same = string(f.Bytes) == r.object.key
		case r.object == nil && f.Number == 2:
			same = same && int64(f.Int) == r.deviceID
		case r.object == nil && f.Number == 3:
			same = same && int64(f.Int) == r.byteSize
		}
		return nil
	})
	return same, err
}

// maxOutputs bounds the outputs of a response: an empty one takes two bytes of the message, and 150 of memory.
const maxOutputs = 1 << 16

// parseResponse reads the message ModelInferResponse. Outputs.Batch checks whether it has the outputs of a request. The
// result shares no memory with the message.
func parseResponse(message []byte) (*Response, error) {
	r := &Response{}
	var contents [][]byte
	err := eachField("ModelInferResponse", message, func(f protofield.Field) error {
		switch f.Number {
		case 1:
			r.Model = string(f.Bytes)
		case 2:
			r.Version = string(f.Bytes)
		case 3:
			r.ID = string(f.Bytes)
		case 5:
			if len(r.Outputs) == maxOutputs {
				return fielderr.Invalid(opInfer, pathOutput, fielderr.Text("more"), fmt.Sprintf("at most %d", maxOutputs))
			}
			t, err := parseOutput(f.Bytes)
			r.Outputs = append(r.Outputs, t)
			return err
		case 6:
			contents = append(contents, f.Bytes)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(contents) > len(r.Outputs) {
		return nil, fielderr.Invalid(opInfer, "ModelInferResponse.raw_output_contents", len(contents), "at most one for each output")
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
	budget := protofield.Budget(8 * len(message)) // of the shape: a dimension takes 8 bytes, and at least one of the message
	err = eachField(pathOutput, message, func(f protofield.Field) (err error) {
		switch f.Number {
		case 1:
			t.Name = string(f.Bytes)
		case 2:
			t.Datatype = string(f.Bytes)
		case 3:
			t.Shape, err = f.AppendTo(t.Shape, &budget)
			if err != nil {
				err = malformed(pathOutput+".shape", err)
			}
		case 4:
			err = t.parseParameter(f.Bytes)
		case 5:
			if len(f.Bytes) > 0 {
				err = fielderr.New(opInfer, pathOutput+".contents", fielderr.Text("typed values"), "raw_output_contents, as Triton makes them", arrow.ErrNotImplemented)
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
	err := eachField(pathOutput+".parameters", message, func(f protofield.Field) error {
		switch f.Number {
		case 1:
			key = string(f.Bytes)
		case 2:
			value = f.Bytes
		}
		return nil
	})
	if err != nil || !strings.HasPrefix(key, "shared_memory_") {
		return err
	}
	return eachField(pathOutput+".parameters", value, func(f protofield.Field) error {
		switch {
		case key == paramRegion && f.Number == 3:
			t.Region = string(f.Bytes)
		case key == paramByteSize && (f.Number == 2 || f.Number == 5):
			t.ByteSize = int64(f.Int)
		case key == paramOffset && (f.Number == 2 || f.Number == 5):
			t.Offset = int64(f.Int)
		}
		return nil
	})
}
