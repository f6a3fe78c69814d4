package hostpinned_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/nilargs"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

func TestNilArguments(t *testing.T) {
	var ctx context.Context
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	mem := hostpinned.New(gpu, 0)
	page := make([]byte, 8192)
	registered, err := hostpinned.Register(gpu, page)
	require.NoError(t, err)
	defer func() { require.NoError(t, registered.Unregister(context.Background())) }()
	nilargs.Check(t, "github.com/arrowdevice/arrowdevice/memory/hostpinned", nil, map[string]nilargs.Row{
		"New(gpu)":          {Call: func() error { hostpinned.New(nil, 0); return nil }, Want: "hostpinned: gpu = nil, want a GPU", Panics: true},
		"New(opts...)":      {Call: func() error { hostpinned.New(gpu, 0, nil); return nil }},
		"WithFallback(mem)": {Call: func() error { hostpinned.New(gpu, 0, hostpinned.WithFallback(nil)); return nil }},
		"Register(gpu)":     {Call: func() error { _, err := hostpinned.Register(nil, page); return err }, Want: "hostpinned: gpu = nil, want a GPU"},
		"Register(opts...)": {Call: func() error {
			r, err := hostpinned.Register(gpu, make([]byte, 8192), nil)
			if err == nil {
				err = r.Unregister(context.Background())
			}
			return err
		}},
		"Registration.Unregister(ctx)": {Call: func() error { return registered.Unregister(ctx) }, Want: "ctx = nil, want a context"},
		"Allocator.TryAllocate(ctx)":   {Call: func() error { _, err := mem.TryAllocate(ctx, 8); return err }, Want: "ctx = nil, want a context"},
	})
	assert.PanicsWithError(t, "hostpinned: limit = -1, want 0 or more", func() { hostpinned.New(gpu, -1) })
}
