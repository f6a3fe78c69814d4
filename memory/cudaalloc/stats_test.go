package cudaalloc_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

func TestStatsAsText(t *testing.T) {
	assert.Equal(t, "nothing", cudaalloc.Stats{}.String())
	assert.Equal(t, "nothing", cudaalloc.Usage{}.String())
	assert.Equal(t, "device 4 KiB in 1 allocation (peak 1.5 MiB, 7 ever), "+
		"pinned none (peak 64 KiB, 1 ever, 64 KiB held, 64 KiB cached), 2 waiting with 8 KiB",
		cudaalloc.Stats{
			Device:  cudaalloc.Usage{Live: 4 << 10, Peak: 3 << 19, Allocations: 1, Total: 7},
			Pinned:  cudaalloc.Usage{Peak: 64 << 10, Held: 64 << 10, Cached: 64 << 10, Total: 1},
			Waiting: 2, WaitingBytes: 8 << 10,
		}.String())
	assert.Equal(t, "opened 1023 B in 2 allocations, registered 3000 GiB in 1 allocation, 1 lost, 4 panics of callbacks", cudaalloc.Stats{
		Opened:     cudaalloc.Usage{Live: 1023, Allocations: 2},
		Registered: cudaalloc.Usage{Live: 3000 << 30, Allocations: 1},
		Lost:       1, CallbackPanics: 4,
	}.String())
}

// Each count has a part in the text.
func TestStatsAsTextHaveAll(t *testing.T) {
	each(t, reflect.ValueOf(&cudaalloc.Stats{}).Elem(), func(v reflect.Value) string { return v.Interface().(cudaalloc.Stats).String() })
	each(t, reflect.ValueOf(&cudaalloc.Usage{}).Elem(), func(v reflect.Value) string { return v.Interface().(cudaalloc.Usage).String() })
}

// each sets one field of v after the other, and expects its number in the text.
func each(t *testing.T, v reflect.Value, text func(reflect.Value) string) {
	t.Helper()
	for i := range v.NumField() {
		v.SetZero()
		f := v.Field(i)
		if f.Kind() == reflect.Struct {
			f = f.FieldByName("Live")
		}
		f.SetInt(7)
		assert.Contains(t, text(v), "7", v.Type().Field(i).Name)
	}
}
