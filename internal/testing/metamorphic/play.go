package metamorphic

import (
	"maps"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// Play is a program that [Source] has printed, and that runs as a test.
type Play struct {
	t testing.TB
	r *run
	p Program
	s []step
	m *model // after the program
}

// Start opens a world for a program.
func Start(t testing.TB, world, program string) *Play {
	p, err := Parse(program)
	require.NoError(t, err)
	w := &Play{t: t, p: p}
	w.s, w.m = steps(p)
	pace := within.MeasurePace()
	t.Cleanup(pace.Stop)
	for _, candidate := range Worlds {
		if candidate.Name == world {
			w.r = newRun(candidate.open(t, pace))
		}
	}
	require.NotNil(t, w.r, "no such world")
	return w
}

// Do does operation i with objects, compares its result with the model's, and returns the object that it made.
func (w *Play) Do(i int, objects ...any) any {
	w.t.Helper()
	s := w.s[i]
	for k, name := range s.On {
		w.r.values[name] = objects[k]
	}
	w.r.tables = s.uses
	got, _ := w.r.within(s.Op)
	require.Equal(w.t, s.want, got, s.String())
	return w.r.values[s.Out]
}

// Made returns an object that the last operation has made, of several.
func (w *Play) Made(name string) any { return w.r.values[name] }

// End releases the objects that are left, and checks that nothing else is.
func (w *Play) End(objects map[string]any) {
	w.t.Helper()
	maps.Copy(w.r.values, objects)
	if f := w.r.end(w.p, w.m); f != nil {
		w.t.Fatal(f)
	}
}

// Device returns the device of "home", "other" or "cpu".
func (w *Play) Device(at string) device.Device { return w.r.at(place(at)) }

// Stream returns the stream "work", or that whose work is "held" back.
func (w *Play) Stream(name string) device.Stream { return w.r.stream(name) }

// Must fails the test if there is an error.
func (w *Play) Must(err error) {
	w.t.Helper()
	require.NoError(w.t, err)
}

// Type returns the type of a name of package cases.
func Type(name string) arrow.DataType { return caseOf(name).Type }

// Field returns the field that columns of a type have under a name.
func Field(name, kind string) arrow.Field { return fieldOf(name, kind) }

// Tag returns the metadata of schemas that have some.
func Tag() *arrow.Metadata { return &tag }
