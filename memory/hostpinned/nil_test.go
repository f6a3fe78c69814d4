package hostpinned_test

import (
	"context"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
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
	mem := cudatest.Pinned(t, gpu)
	page := make([]byte, 8192)
	registered, err := hostpinned.Register(gpu, page)
	require.NoError(t, err)
	defer func() { require.NoError(t, registered.Unregister(background)) }()
	nilargs.Check(t, "github.com/arrowdevice/arrowdevice/memory/hostpinned", arrow.ErrInvalid, map[string]nilargs.Row{
		"NewAllocator(gpu)":            {Call: func() error { _, err := hostpinned.NewAllocator(nil); return err }, Want: "hostpinned: NewAllocator: gpu = nil, want a GPU"},
		"NewAllocator(opts...)":        {Call: func() error { _, err := hostpinned.NewAllocator(gpu, nil); return err }, Want: "hostpinned: NewAllocator: opts[0] = nil, want an option"},
		"WithFallback(mem)":            {Call: func() error { _, err := hostpinned.NewAllocator(gpu, hostpinned.WithFallback(nil)); return err }},
		"Register(gpu)":                {Call: func() error { _, err := hostpinned.Register(nil, page); return err }, Want: "hostpinned: Register: gpu = nil, want a GPU"},
		"Register(opts...)":            {Call: func() error { _, err := hostpinned.Register(gpu, page, nil); return err }, Want: "hostpinned: Register: opts[0] = nil, want an option"},
		"Registration.Unregister(ctx)": {Call: func() error { return registered.Unregister(ctx) }, Want: "ctx = nil, want a context"},
		"Allocator.TryAllocate(ctx)":   {Call: func() error { _, err := mem.TryAllocate(ctx, 8); return err }, Want: "ctx = nil, want a context"},
	})
	_, err = hostpinned.NewAllocator(gpu, hostpinned.WithLimit(-1))
	assert.ErrorContains(t, err, "hostpinned: NewAllocator: WithLimit(-1), want 0 or more")
	assert.ErrorIs(t, err, arrow.ErrInvalid)
}
