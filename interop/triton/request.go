package triton

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// A Request is an inference whose inputs, and whose outputs if it names some, are in registered regions. Each tensor
// of each region is an input of the model, or an output. Outputs that are not named are in no region: Triton returns all
// outputs of the model in the response if the request names none.
type Request struct {
	Model   string
	Version string // empty: the server chooses
	ID      string // comes back in the response; may be empty
	Inputs  []*Region
	Outputs []*Outputs
}

// Marshal returns the message inference.ModelInferRequest, for the method ModelInfer. The regions must be
// registered when it is sent, and must not be closed before the response; [Client.Infer] keeps them. The tensors of a
// region must have names of their own.
//
// A program that sends the message itself also keeps to the rules of [Outputs].
func (r *Request) Marshal() ([]byte, error) {
	if r == nil {
		return nil, fielderr.Absent(opTriton, "Request", "a request")
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	b := putBytes(nil, 1, r.Model)
	b = putBytes(b, 2, r.Version)
	b = putBytes(b, 3, r.ID)
	for _, region := range r.Inputs {
		for _, t := range region.tensors {
			b = putMessage(b, 5, input(region.name, t))
		}
	}
	for _, out := range r.Outputs {
		for _, t := range out.region.tensors {
			b = putMessage(b, 6, output(out.region.name, t))
		}
	}
	return b, nil
}

// check returns an error if the server would misread the message.
func (r *Request) check() error {
	if err := checkName(r.Model); err != nil {
		return fielderr.Within("Request.Model", err)
	}
	for name, text := range map[string]string{"Request.Version": r.Version, "Request.ID": r.ID} {
		if !utf8.ValidString(text) {
			return fielderr.Invalid(opTriton, name, quoted(text), "UTF-8")
		}
	}
	if len(r.Inputs) == 0 {
		return fielderr.Invalid(opTriton, "Request.Inputs", 0, "at least one region")
	}
	names := regionNames{}
	if err := names.addInputs(r.Inputs); err != nil {
		return err
	}
	return names.addOutputs(r.Outputs)
}

// regionNames are the regions of a request by name: two regions of one name would be one to the server.
type regionNames map[string]*Region

func (n regionNames) add(r *Region) error {
	if other := n[r.name]; other != nil && other != r {
		return fielderr.Invalid(opTriton, "Request.Region.Name", quoted(r.name), "a name that no other region of the request has")
	}
	n[r.name] = r
	return nil
}

func (n regionNames) addInputs(regions []*Region) error {
	var tensors []Tensor
	for _, r := range regions {
		if r == nil {
			return fielderr.Absent(opTriton, "Request.Inputs", "regions")
		}
		if err := n.add(r); err != nil {
			return err
		}
		tensors = append(tensors, r.tensors...)
	}
	return fielderr.Within("Request.Inputs", checkTensors(tensors))
}

func (n regionNames) addOutputs(outputs []*Outputs) error {
	var tensors []Tensor
	for _, out := range outputs {
		if out == nil {
			return fielderr.Absent(opTriton, "Request.Outputs", "outputs")
		}
		if err := n.add(out.region); err != nil {
			return err
		}
		tensors = append(tensors, out.region.tensors...)
	}
	return fielderr.Within("Request.Outputs", checkTensors(tensors))
}

// input returns the message ModelInferRequest.InferInputTensor.
func input(region string, t Tensor) []byte {
	b := putBytes(nil, 1, t.Name)
	b = putBytes(b, 2, t.Datatype)
	b = putShape(b, 3, t.Shape)
	return putPlace(b, 4, region, t)
}

// output returns the message ModelInferRequest.InferRequestedOutputTensor.
func output(region string, t Tensor) []byte {
	return putPlace(putBytes(nil, 1, t.Name), 2, region, t)
}

// The parameters of a tensor in a region.
const (
	paramRegion   = "shared_memory_region"
	paramByteSize = "shared_memory_byte_size"
	paramOffset   = "shared_memory_offset"
)

// putPlace appends the map of parameters that says where a tensor is.
func putPlace(b []byte, field protowire.Number, region string, t Tensor) []byte {
	entry := func(key string, value []byte) {
		b = putMessage(b, field, putMessage(putBytes(nil, 1, key), 2, value))
	}
	entry(paramRegion, putBytes(nil, 3, region))
	entry(paramByteSize, putInt(nil, 2, t.ByteSize))
	if t.Offset != 0 {
		entry(paramOffset, putInt(nil, 2, t.Offset))
	}
	return b
}
