package triton

import (
	"fmt"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// Check returns an error if a request does not fit the model, which it then names, without a call to the server. Each input must
// be there: the metadata does not say which ones are optional, so delete those that a request leaves out from m.Inputs. Inputs have
// the model's datatypes and shapes; [WithShape] changes the shape of a column. Outputs have the model's datatypes, and the lengths of
// their fixed-size lists are its last dimensions, as [Outputs.Batch] wants it: there, and here, dimensions of 1 do not count.
func (m *Model) Check(r *Request) error {
	if r == nil {
		return argument.Nil("triton: Model.Check", "r", "a request")
	}
	if err := r.check(); err != nil {
		return fielderr.During(opModel, err)
	}
	if r.Model != m.Name {
		return fielderr.Invalid(opModel, "Request.Model", quoted(r.Model), quoted(m.Name))
	}
	given := map[string]bool{}
	for _, region := range r.Inputs {
		for _, t := range region.current() {
			given[t.Name] = true
			if err := checkTensor(t, m.Inputs, fitsInput); err != nil {
				return fielderr.Within("Request.Inputs", err)
			}
		}
	}
	for _, in := range m.Inputs {
		if !given[in.Name] {
			return fielderr.Within("Request.Inputs", ofColumn(in.Name, fielderr.Invalid(opModel, "name", fielderr.Text("absent"), "all inputs of the model")))
		}
	}
	for _, out := range r.Outputs {
		for _, t := range out.region.current() {
			if err := checkTensor(t, m.Outputs, fitsOutput); err != nil {
				return fielderr.Within("Request.Outputs", err)
			}
		}
	}
	return nil
}

// checkTensor compares a tensor with that of the same name of a model.
func checkTensor(t Tensor, of []ModelTensor, fits func(shape, want []int64) bool) error {
	i := slices.IndexFunc(of, func(have ModelTensor) bool { return have.Name == t.Name })
	switch {
	case i < 0:
		names := make([]string, len(of))
		for k := range of {
			names[k] = of[k].Name
		}
		return ofColumn(t.Name, fielderr.Invalid(opModel, "name", quoted(t.Name), fmt.Sprintf("one of %q", names)))
	case t.Datatype != of[i].Datatype:
		return ofColumn(t.Name, fielderr.Invalid(opModel, "datatype", quoted(t.Datatype), quoted(of[i].Datatype)))
	case !fits(t.Shape, of[i].Shape):
		return ofColumn(t.Name, fielderr.Invalid(opModel, "shape", t.Shape, fmt.Sprintf("%v, where -1 is any", of[i].Shape)))
	}
	return nil
}

// fitsInput reports whether the shape of an input is one that a model accepts.
func fitsInput(shape, want []int64) bool {
	return slices.EqualFunc(shape, want, func(n, want int64) bool { return want == -1 || n == want })
}

// fitsOutput reports whether an output of a model's shape may have rows of the shape's other dimensions. A dimension that may
// have any size may also be 1, and not count, so those before it are not compared.
func fitsOutput(shape, want []int64) bool {
	row := slices.DeleteFunc(slices.Clone(shape[1:]), isOne)
	want = slices.DeleteFunc(slices.Clone(want), isOne)
	for len(row) > 0 {
		if len(want) == 0 {
			return false
		}
		last := want[len(want)-1]
		if last == -1 {
			return true
		}
		if last != row[len(row)-1] {
			return false
		}
		row, want = row[:len(row)-1], want[:len(want)-1]
	}
	return true
}

// InputSchema returns the schema of a batch whose columns are the inputs of the model, in the model's order: the first dimension is
// the rows, and each further one a fixed-size list. BOOL is bool, and BYTES is binary, since nothing says that they are text. The
// fields are not nullable.
//
// A further dimension that may have any size, or a type that Arrow does not have, is an error that names the input; the program
// then chooses the type of the column itself.
func (m *Model) InputSchema() (*arrow.Schema, error) { return schemaOf("Model.Inputs", m.Inputs) }

// OutputSchema returns the schema for [NewSystemOutputs], or [NewOutputs] if its columns are numbers, as InputSchema does for inputs.
func (m *Model) OutputSchema() (*arrow.Schema, error) { return schemaOf("Model.Outputs", m.Outputs) }

func schemaOf(path string, tensors []ModelTensor) (*arrow.Schema, error) {
	fields := make([]arrow.Field, len(tensors))
	for i, t := range tensors {
		dt, err := t.columnType()
		if err != nil {
			return nil, fielderr.Within(path+"["+quoted(t.Name)+"]", err)
		}
		fields[i] = arrow.Field{Name: t.Name, Type: dt}
	}
	return arrow.NewSchema(fields, nil), nil
}

// columnTypes are the types of columns by the datatypes of Triton.
var columnTypes = map[string]arrow.DataType{
	"BOOL": arrow.FixedWidthTypes.Boolean, "BYTES": arrow.BinaryTypes.Binary,
	"INT8": arrow.PrimitiveTypes.Int8, "INT16": arrow.PrimitiveTypes.Int16, "INT32": arrow.PrimitiveTypes.Int32, "INT64": arrow.PrimitiveTypes.Int64,
	"UINT8": arrow.PrimitiveTypes.Uint8, "UINT16": arrow.PrimitiveTypes.Uint16, "UINT32": arrow.PrimitiveTypes.Uint32, "UINT64": arrow.PrimitiveTypes.Uint64,
	"FP16": arrow.FixedWidthTypes.Float16, "FP32": arrow.PrimitiveTypes.Float32, "FP64": arrow.PrimitiveTypes.Float64,
}

// columnType returns the type of a column that is the tensor.
func (t ModelTensor) columnType() (arrow.DataType, error) {
	dt := columnTypes[t.Datatype]
	switch {
	case dt == nil:
		return nil, fielderr.New(opModel, "datatype", quoted(t.Datatype), "a type that Arrow has", arrow.ErrNotImplemented)
	case len(t.Shape) == 0:
		return nil, fielderr.Invalid(opModel, "shape", t.Shape, "a dimension for the rows")
	}
	for _, n := range slices.Backward(t.Shape[1:]) {
		if n < 1 || n > math.MaxInt32 {
			return nil, fielderr.Invalid(opModel, "shape", t.Shape, "sizes of all dimensions but the first")
		}
		dt = arrow.FixedSizeListOfNonNullable(int32(n), dt)
	}
	return dt, nil
}
