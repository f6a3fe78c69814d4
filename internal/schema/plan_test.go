package schema

import (
	"runtime"
	"testing"
	"weak"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
)

func TestPlanThatIsNotUsedKeepsNothingAlive(t *testing.T) {
	noLeak(t)
	md := metadata("k", "v")
	kept := weak.Make(&md.Keys()[0])
	bridge.CallSchemaRelease(mustExport(t, arrow.Field{Name: "a", Type: arrow.PrimitiveTypes.Int64, Metadata: md}))
	md = arrow.Metadata{}
	runtime.GC()
	assert.Nil(t, kept.Value())
}

func TestPlanOfALargeSchemaIsNotKept(t *testing.T) {
	noLeak(t)
	fields := make([]arrow.Field, mostNodes+1)
	for i := range fields {
		fields[i].Type = arrow.PrimitiveTypes.Int64
	}
	var s abi.ArrowSchema
	require.NoError(t, ExportSchema(arrow.NewSchema(fields, nil), &s))
	bridge.CallSchemaRelease(&s)
	p := plans.Get().(*plan)
	defer p.end()
	assert.LessOrEqual(t, cap(p.nodes), mostNodes)
}
