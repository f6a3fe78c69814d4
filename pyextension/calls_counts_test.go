//go:build cgo && unix && !asan && !race

// AddressSanitizer makes the compiler allocate where it otherwise does not, and the race detector makes a sync.Pool drop some
// of what it has.

package pyextension

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/pyextension/internal/capi"
)

// What a call needs is in one piece of memory that is used again; the rest is reflection's, and of a batch its source.
func TestCallsAllocate(t *testing.T) {
	most := map[string]float64{"empty": 0, "add": 4, "rows": 5}
	for name, req := range registerCalls(t) {
		var r dropped
		least := testing.AllocsPerRun(100, func() { server{}.Call(req, capi.Caller{Main: true}, 0, &r) })
		for range 10 { // the collector empties the pool
			least = min(least, testing.AllocsPerRun(100, func() { server{}.Call(req, capi.Caller{Main: true}, 0, &r) }))
		}
		assert.LessOrEqual(t, least, most[name], name)
	}
}
