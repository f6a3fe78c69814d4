package cudaalloc_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

func TestStatsSayWhatIsNotZero(t *testing.T) {
	for want, s := range map[string]cudaalloc.Stats{
		"nothing allocated":                         {},
		"device: 16 B live in 1 allocations":        {Device: cudaalloc.Usage{Live: 16, Allocations: 1}},
		"managed: 3 allocations ever; 2 lost":       {Managed: cudaalloc.Usage{Total: 3}, Lost: 2},
		"2 waiting with 1.5 GiB; 1 callback panics": {Waiting: 2, WaitingBytes: 3 << 29, CallbackPanics: 1},
		"pinned: 1.0 MiB cached, 2.0 MiB held, 1.5 KiB at the peak; opened: 1.0 TiB live in 1 allocations; registered: 1023 B live in 4 allocations": {
			Pinned:     cudaalloc.Usage{Cached: 1 << 20, Held: 2 << 20, Peak: 1536},
			Opened:     cudaalloc.Usage{Live: 1 << 40, Allocations: 1},
			Registered: cudaalloc.Usage{Live: 1023, Allocations: 4},
		},
	} {
		assert.Equal(t, want, s.String())
	}
}
