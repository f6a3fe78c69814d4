//go:build !asan && !race

// AddressSanitizer and the race detector make the compiler allocate where it otherwise does not.

package cuda_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
)

// Queries have results on the stack, where C writes them.
func TestQueriesDoNotAllocate(t *testing.T) {
	_, ctx := retainedOf(t, cudatest.One(t, cudasim.Options{}))
	p, err := ctx.NewMemory(64)
	require.NoError(t, err)
	defer func() { assert.NoError(t, ctx.FreeMemory(p)) }()
	for name, query := range map[string]func() error{
		"address": func() error { _, err := ctx.Query(p); return err },
		"memory":  func() error { _, _, err := ctx.MemoryInfo(); return err },
	} {
		assert.Zero(t, testing.AllocsPerRun(100, func() {
			if err := query(); err != nil {
				t.Error(err)
			}
		}), name)
	}
}
