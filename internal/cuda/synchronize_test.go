package cuda_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// Synchronising a context waits for the work of streams that another library made.
func TestGPUSynchronizeWaits(t *testing.T) {
	for name, synchronize := range map[string]func(*cuda.Context) (bool, error){
		"Synchronize": func(ctx *cuda.Context) (bool, error) { return true, ctx.Synchronize() },
		"SynchronizeFor": func(ctx *cuda.Context) (bool, error) {
			var asked atomic.Int32
			return ctx.SynchronizeFor(nil, &asked, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, ctx := retainedOf(t, cudatest.One(t, cudasim.Options{}))
			open := m.Stranger(t, m.GPUs[0]).Hold(t)
			var opened atomic.Bool
			time.AfterFunc(50*time.Millisecond, func() {
				opened.Store(true)
				open()
			})
			within.Seconds(t, "the context is synchronised", func() error {
				done, err := synchronize(ctx)
				assert.True(t, opened.Load(), "it returned before the work was done")
				assert.True(t, done)
				return err
			})
		})
	}
}
