//go:build unix

package dlpack_test

import (
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/interop/dlpack"
)

// A forked child, in which Go does not run, may call the deleter of a tensor that it inherited.
func TestDeleterInAForkedChild(t *testing.T) {
	out, err := dlpack.Export(fromJSON(t, arrow.PrimitiveTypes.Int32, "[1]"))
	require.NoError(t, err)
	before := cdevice.ReadStats()
	require.NoError(t, cpeer.DeleteInFork(uintptr(unsafe.Pointer(out))))
	assert.Equal(t, before, cdevice.ReadStats())
	out.Delete()
}
