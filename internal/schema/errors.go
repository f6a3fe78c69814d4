package schema

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// The limits on a tree; see the package comment. Those that are exported are limits on its arrays, too.
const (
	MaxDepth = 64       // levels below the root
	MaxNodes = 1 << 20  // structs
	maxText  = 64 << 20 // bytes of formats, names and metadata
	maxPairs = 1 << 16  // of metadata on one struct
)

// Requirements that several fields have in common.
var (
	fewLevels  = fielderr.Text(fmt.Sprintf("at most %d levels below the root", MaxDepth))
	fewStructs = fielderr.Text(fmt.Sprintf("at most %d structs in the tree", MaxNodes))
	littleText = fielderr.Text(fmt.Sprintf("at most %d MiB of names and metadata in the tree", maxText>>20))
	fewPairs   = fielderr.Text(fmt.Sprintf("0 to %d", maxPairs))
)

const integerIndices fielderr.Text = "an integer type for the indices of a dictionary"

// invalid returns the error for a field that the C data interface does not allow. The path begins
// at the current struct, as in ".children[0].format". under prepends the parents while the error is
// returned up the tree, so that no path is built without an error.
func invalid(field string, got, want any) error {
	return &fielderr.Error{Field: field, Got: got, Want: want, Err: arrow.ErrInvalid}
}

var errNoColumns = fmt.Errorf("%w: it is no struct of columns; ImportArray, ImportArrayReader and ImportField take all types", arrow.ErrInvalid)

// unsupported returns the error for a field that the interface allows and arrow-go does not support.
func unsupported(field string, got, want any) error {
	return &fielderr.Error{Field: field, Got: got, Want: want, Err: arrow.ErrNotImplemented}
}

// under prepends a step to the path of an error of this package.
func under(step string, err error) error {
	if e, ok := err.(*fielderr.Error); ok {
		e.Field = step + e.Field
	}
	return err
}

// finish completes an error that has reached the root of the tree.
func finish(op string, err error) error { return ofField("ArrowSchema", op, err) }

// ofField completes the error of a field of any struct.
func ofField(field, op string, err error) error {
	if e, ok := err.(*fielderr.Error); ok {
		e.Op = op
	}
	return under(field, err)
}
