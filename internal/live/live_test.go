package live

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/testing/emulated"
)

func TestObjectsAreListedWithTheStackThatMadeThem(t *testing.T) {
	defer Trace(Trace(true))
	first := makeOne("first")
	second := makeOne("second")
	objects := Objects()
	require.Len(t, objects, 2)
	assert.Same(t, first, objects[0], "the oldest first")
	assert.Less(t, first.Number(), second.Number())
	var functions []string
	for _, f := range first.Frames() {
		functions = append(functions, f.Function)
	}
	assert.Contains(t, strings.Join(functions, "\n"), "live.makeOne")
	assert.Contains(t, strings.Join(functions, "\n"), t.Name())
	first.Remove()
	second.Remove()
	second.Remove() // a second time changes nothing
	assert.Empty(t, Objects())
}

//go:noinline
func makeOne(kind string) *Object { return Add(kind) }

func TestOffCostsNothing(t *testing.T) {
	defer Trace(Trace(false))
	assert.Zero(t, testing.AllocsPerRun(100, func() { Add("object").Remove() }))
	assert.Empty(t, Objects())
}

func TestObjectThatIsTracedEndsAfterTracingDoes(t *testing.T) {
	before := Trace(true)
	defer Trace(before)
	o := Add("object")
	assert.True(t, Trace(false))
	assert.Len(t, Objects(), 1)
	o.Remove()
	assert.Empty(t, Objects())
}

func TestEnvironmentSwitchesTracingOn(t *testing.T) {
	if os.Getenv("CDEVICE_TRACE_CHILD") != "" {
		assert.Equal(t, os.Getenv("CDEVICE_TRACE_CHILD") == "on", Trace(false))
		return
	}
	for value, want := range map[string]string{"1": "on", "0": "off", "": "off"} {
		child := emulated.Command(os.Args[0], "-test.run=^TestEnvironmentSwitchesTracingOn$")
		child.Env = append(os.Environ(), "CDEVICE_TRACE="+value, "CDEVICE_TRACE_CHILD="+want)
		out, err := child.CombinedOutput()
		assert.NoError(t, err, "%s", out)
	}
}
