package schema

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
)

var nested = arrow.Field{Name: "root", Type: arrow.StructOf(
	arrow.Field{Name: "list", Type: arrow.ListOf(arrow.BinaryTypes.String), Metadata: metadata("k", "v")},
	arrow.Field{Name: "dict", Type: dict(arrow.PrimitiveTypes.Int8, arrow.ListOf(arrow.Null))},
)}

func TestExportIsOneAllocation(t *testing.T) {
	noLeak(t)
	before := bridge.Blocks()
	s := mustExport(t, nested)
	assert.EqualValues(t, 1, bridge.Blocks()-before)
	block := abi.At[bridge.Block](s.PrivateData)
	assert.EqualValues(t, 6, block.Live, "structs")
	assert.Zero(t, block.Handle)
	bridge.CallSchemaRelease(s)
	assert.Zero(t, s.Release)
}

func TestMovedChildOutlivesItsParent(t *testing.T) {
	noLeak(t)
	before := bridge.Blocks()
	s := mustExport(t, nested)
	list, values := move(child(s, 0)), move(dictionary(child(s, 1)))
	bridge.CallSchemaRelease(s)
	require.Equal(t, before+1, bridge.Blocks(), "two structs of the block are alive")
	assert.Equal(t, "list:+l [k=v]{item:u n}", render(list))
	f, err := Import(list)
	require.NoError(t, err)
	assert.NoError(t, sameField(nested.Type.(*arrow.StructType).Field(0), f))
	require.Equal(t, before+1, bridge.Blocks(), "a struct of the block is alive")
	item := move(child(values, 0))
	bridge.CallSchemaRelease(values)
	f, err = Import(item)
	require.NoError(t, err)
	assert.Equal(t, arrow.Null, f.Type)
}

func TestImportOfATreeWhoseChildWasMovedOut(t *testing.T) {
	noLeak(t)
	s := mustExport(t, nested)
	list := move(child(s, 0))
	_, err := Import(s)
	assert.ErrorContains(t, err, "ArrowSchema.children[0].release = NULL: invalid: already released, or never filled")
	_, err = Import(list)
	assert.NoError(t, err)
}

func TestImportReleasesTheRootOnceAndNoChild(t *testing.T) {
	noLeak(t)
	s := mustExport(t, nested)
	calls := countReleases(t, func(got *abi.ArrowSchema) {
		assert.Same(t, s, got, "the root is released")
		bridge.CallSchemaRelease(got)
	})
	_, err := Import(s)
	assert.NoError(t, err)
	assert.Equal(t, 1, *calls, "calls of release")
}

func TestImportOfNothingCallsNothing(t *testing.T) {
	noLeak(t)
	calls := countReleases(t, func(*abi.ArrowSchema) {})
	released := mustExport(t, nested)
	bridge.CallSchemaRelease(released)
	for want, s := range map[string]*abi.ArrowSchema{
		"cdevice: import: ArrowSchema = NULL, want a struct: invalid":                             nil,
		"cdevice: import: ArrowSchema.release = NULL: invalid: already released, or never filled": released,
	} {
		_, err := Import(s)
		assert.EqualError(t, err, want)
		_, err = ImportSchema(s)
		assert.EqualError(t, err, want)
	}
	assert.Equal(t, 0, *calls, "calls of release")
}

// countReleases replaces the call of release for the rest of the test.
func countReleases(t *testing.T, call func(*abi.ArrowSchema)) *int {
	calls, saved := 0, release
	release = func(s *abi.ArrowSchema) { calls++; call(s) }
	t.Cleanup(func() { release = saved })
	return &calls
}
