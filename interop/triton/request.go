package triton

import (
	"unicode/utf8"

	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// A Request is an inference whose inputs are in registered regions. Each tensor of each region is an input of the model, and
// each tensor of Outputs an output. If there are no Outputs, Triton returns all outputs of the model in the response.
type Request struct {
	Model   string
	Version string // empty: the server chooses
	ID      string // returned in the response; may be empty
	Inputs  []*Region
	Outputs []*Outputs
}

// check returns an error if the server would misread the message.
func (r *Request) check() error {
	if r == nil {
		return argument.Nil("triton: Infer", "r", "a request")
	}
	if err := checkName(r.Model); err != nil {
		return fielderr.During(opInfer, fielderr.Within("Request.Model", err))
	}
	for name, text := range map[string]string{"Request.Version": r.Version, "Request.ID": r.ID} {
		if !utf8.ValidString(text) {
			return fielderr.Invalid(opInfer, name, quoted(text), "UTF-8")
		}
	}
	if len(r.Inputs) == 0 {
		return fielderr.Invalid(opInfer, "Request.Inputs", 0, "at least one region")
	}
	names := regionNames{}
	for _, region := range r.Inputs {
		if region == nil {
			return fielderr.Invalid(opInfer, "Request.Inputs", "nil", "regions")
		}
	}
	if err := names.add("Request.Inputs", r.Inputs); err != nil {
		return err
	}
	var regions []*Region
	for _, out := range r.Outputs {
		if out == nil || out.region == nil {
			return fielderr.Invalid(opInfer, "Request.Outputs", "nil", "outputs of NewOutputs")
		}
		regions = append(regions, out.region)
	}
	return names.add("Request.Outputs", regions)
}

// regionNames are the regions of a request by name. To the server, two regions of one name would be one.
type regionNames map[string]*Region

// add adds the regions of a field of the request, whose tensors must have distinct names.
func (n regionNames) add(field string, regions []*Region) error {
	var tensors []Tensor
	for _, r := range regions {
		if other := n[r.name]; other != nil && other != r {
			return fielderr.Invalid(opInfer, "Request.Region.Name", quoted(r.name), "a name that no other region of the request has")
		}
		n[r.name] = r
		tensors = append(tensors, r.current()...)
	}
	return fielderr.During(opInfer, fielderr.Within(field, checkTensors(tensors)))
}
