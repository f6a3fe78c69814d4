package triton_test

import (
	"context"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/nilargs"
	"github.com/arrowdevice/arrowdevice/interop/triton"
)

func TestNilArguments(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	batch := upload(t, gpu.Shareable(), numbers, numbersRows)
	r, o := regionOf(t, "r", batch), outputsOf(t, m, "o", numbers, 3)
	c, err := triton.NewClient(newFake())
	require.NoError(t, err)
	region := func(ctx context.Context, b *cdevice.RecordBatch, opts ...triton.RegionOption) error {
		r, err := triton.NewRegion(ctx, "r", b, opts...)
		if err == nil {
			r.Close()
		}
		return err
	}
	outputs := func(ctx context.Context, gpu device.Device, schema *arrow.Schema, opts ...triton.RegionOption) error {
		o, err := triton.NewOutputs(ctx, "o", gpu, schema, 1, opts...)
		if err == nil {
			o.Region().Close()
		}
		return err
	}
	systemRegion := func(ctx context.Context, b *cdevice.RecordBatch, opts ...triton.RegionOption) error {
		_, err := triton.NewSystemRegion(ctx, "r", b, opts...)
		return err
	}
	systemOutputs := func(ctx context.Context, schema *arrow.Schema, opts ...triton.RegionOption) error {
		_, err := triton.NewSystemOutputs(ctx, "o", schema, 1, opts...)
		return err
	}
	infer := func(ctx context.Context, r *triton.Request) error {
		_, err := c.Infer(ctx, r)
		return err
	}
	request := &triton.Request{Model: "m", Inputs: []*triton.Region{r}}
	var none context.Context
	const wantContext = "ctx = nil, want a context"
	nilargs.Check(t, "github.com/arrowdevice/arrowdevice/interop/triton", arrow.ErrInvalid, map[string]nilargs.Row{
		"NewRegion(ctx)":             {Call: func() error { return region(none, batch) }, Want: wantContext},
		"NewRegion(batch)":           {Call: func() error { return region(background, nil) }, Want: "triton: NewRegion: batch = nil, want a batch"},
		"NewRegion(opts...)":         {Call: func() error { return region(background, batch, nil) }, Want: "triton: NewRegion: opts[0] = nil, want an option"},
		"NewOutputs(ctx)":            {Call: func() error { return outputs(none, gpu, numbers) }, Want: wantContext},
		"NewOutputs(gpu)":            {Call: func() error { return outputs(background, nil, numbers) }, Want: "triton: NewOutputs: gpu = nil, want a GPU"},
		"NewOutputs(schema)":         {Call: func() error { return outputs(background, gpu, nil) }, Want: "triton: NewOutputs: schema = nil, want a schema"},
		"NewOutputs(opts...)":        {Call: func() error { return outputs(background, gpu, numbers, nil) }, Want: "triton: NewOutputs: opts[0] = nil, want an option"},
		"NewSystemRegion(ctx)":       {Call: func() error { return systemRegion(none, batch) }, Want: wantContext},
		"NewSystemRegion(batch)":     {Call: func() error { return systemRegion(background, nil) }, Want: "triton: NewSystemRegion: batch = nil, want a batch"},
		"NewSystemRegion(opts...)":   {Call: func() error { return systemRegion(background, batch, nil) }, Want: "triton: NewSystemRegion: opts[0] = nil, want an option"},
		"NewSystemOutputs(ctx)":      {Call: func() error { return systemOutputs(none, numbers) }, Want: wantContext},
		"NewSystemOutputs(schema)":   {Call: func() error { return systemOutputs(background, nil) }, Want: "triton: NewSystemOutputs: schema = nil, want a schema"},
		"NewSystemOutputs(opts...)":  {Call: func() error { return systemOutputs(background, numbers, nil) }, Want: "triton: NewSystemOutputs: opts[0] = nil, want an option"},
		"WithPinnedMemory(gpu)":      {Call: func() error { return systemRegion(background, batch, triton.WithPinnedMemory(nil)) }, Want: "triton: WithPinnedMemory: gpu = nil, want a GPU"},
		"Region.Write(ctx)":          {Call: func() error { return r.Write(none, batch) }, Want: wantContext},
		"Region.Write(batch)":        {Call: func() error { return r.Write(background, nil) }, Want: "triton: Region.Write: batch = nil, want a batch"},
		"Outputs.Batch(response)":    {Call: func() error { _, err := o.Batch(nil); return err }, Want: "triton: Outputs.Batch: response = nil, want a response"},
		"NewClient(conn)":            {Call: func() error { _, err := triton.NewClient((*grpc.ClientConn)(nil)); return err }, Want: "triton: NewClient: conn = nil, want a connection"},
		"Client.Register(ctx)":       {Call: func() error { return c.Register(none, r) }, Want: wantContext},
		"Client.Register(r)":         {Call: func() error { return c.Register(background, nil) }, Want: "triton: Register: r = nil, want a region"},
		"Client.Unregister(ctx)":     {Call: func() error { return c.Unregister(none, r) }, Want: wantContext},
		"Client.Unregister(r)":       {Call: func() error { return c.Unregister(background, nil) }, Want: "triton: Unregister: r = nil, want a region"},
		"Client.UnregisterName(ctx)": {Call: func() error { return c.UnregisterName(none, "r") }, Want: wantContext},
		"Client.Server(ctx)":         {Call: func() error { _, err := c.Server(none); return err }, Want: wantContext},
		"Client.Model(ctx)":          {Call: func() error { _, err := c.Model(none, "m", ""); return err }, Want: wantContext},
		"Model.Check(r)":             {Call: func() error { return (&triton.Model{}).Check(nil) }, Want: "triton: Model.Check: r = nil, want a request"},
		"Client.Infer(ctx)":          {Call: func() error { return infer(none, request) }, Want: wantContext},
		"Client.Infer(r)":            {Call: func() error { return infer(background, nil) }, Want: "triton: Infer: r = nil, want a request"},
	})
}
