package fielderr_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

func TestErrorText(t *testing.T) {
	for _, c := range []struct {
		name string
		err  fielderr.Error
		want string
	}{
		{"got and want", fielderr.Error{
			Op: fielderr.Import, Field: "ArrowSchema.children[2].format",
			Got: "w3", Want: "w:<bytes>", Err: arrow.ErrInvalid,
		}, `cdevice: import: ArrowSchema.children[2].format = "w3", want "w:<bytes>": invalid`},
		{"numbers are not quoted", fielderr.Error{
			Op: fielderr.Import, Field: "ArrowDeviceArray.array.n_buffers",
			Got: 1, Want: int64(2), Err: arrow.ErrInvalid,
		}, `cdevice: import: ArrowDeviceArray.array.n_buffers = 1, want 2: invalid`},
		{"without got", fielderr.Error{
			Op: fielderr.Export, Field: "ArrowSchema.name", Want: "UTF-8", Err: arrow.ErrInvalid,
		}, `cdevice: export: ArrowSchema.name, want "UTF-8": invalid`},
		{"text is not quoted", fielderr.Error{
			Op: fielderr.Import, Field: "ArrowSchema.children",
			Got: fielderr.NULL, Want: fielderr.Text("2 pointers"), Err: arrow.ErrInvalid,
		}, `cdevice: import: ArrowSchema.children = NULL, want 2 pointers: invalid`},
		{"a released struct", fielderr.Error{
			Op: fielderr.Import, Field: "ArrowSchema.release", Got: fielderr.NULL, Err: fielderr.ErrReleased,
		}, `cdevice: import: ArrowSchema.release = NULL: invalid: already released`},
		{"without want", fielderr.Error{
			Op: fielderr.Import, Field: "ArrowSchema.format", Got: "", Err: arrow.ErrNotImplemented,
		}, `cdevice: import: ArrowSchema.format = "": not implemented`},
		{"only a field", fielderr.Error{Op: fielderr.Import, Field: "ArrowSchema.release"},
			`cdevice: import: ArrowSchema.release`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.err.Error(); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestUnwrapReachesTheSentinel(t *testing.T) {
	err := error(&fielderr.Error{
		Op: fielderr.Import, Field: "ArrowSchema", Err: fmt.Errorf("%w: why", arrow.ErrInvalid),
	})
	if !errors.Is(err, arrow.ErrInvalid) || errors.Is(err, arrow.ErrNotImplemented) {
		t.Errorf("errors.Is does not see the kind of %v", err)
	}
	var fe *fielderr.Error
	if !errors.As(err, &fe) || fe.Field != "ArrowSchema" {
		t.Errorf("errors.As does not find the field of %v", err)
	}
}
