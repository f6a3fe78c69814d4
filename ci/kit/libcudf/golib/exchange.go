//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// exchange is an array that a consumer has, and the original that its results are compared to.
type exchange struct {
	job     job
	want    arrow.RecordBatch
	made    made
	pending *pending
}

func (x *exchange) export(out *cdevice.CArrowDeviceArray, schema *cdata.CArrowSchema) error {
	return x.made.export(out, schema)
}

// exportSchema exports the schema alone: consumers take what they are given.
func (x *exchange) exportSchema(schema *cdata.CArrowSchema) error {
	switch m := x.made.(type) {
	case madeArray:
		return cdevice.ExportField(m.Field(), schema)
	case madeBatch:
		return cdevice.ExportSchema(m.Schema(), schema)
	}
	return fmt.Errorf("%T has no schema", x.made)
}

// end waits for the work that fills the array: its memory may be in use until then.
func (x *exchange) end() error {
	err := errors.Join(x.pending.end(), x.made.Synchronize(context.Background()))
	x.made.Release()
	x.want.Release()
	return err
}

// result is the outcome of a comparison: the type that changed, and the first difference of the values.
type result struct{ changed, different string }

// takeBack imports what a consumer made of the array, checks it, and compares it to the original.
func (x *exchange) takeBack(in *cdevice.CArrowDeviceArray, schema *cdata.CArrowSchema) (result, error) {
	var back made
	if x.job.form.isTable() {
		b, err := cdevice.ImportRecordBatch(in, schema)
		if err != nil {
			return result{}, fmt.Errorf("import: %w", err)
		}
		back = madeBatch{b}
	} else {
		a, err := cdevice.ImportArray(in, schema)
		if err != nil {
			return result{}, fmt.Errorf("import: %w", err)
		}
		back = madeArray{a}
	}
	defer back.Release()
	return x.compare(back)
}

func (x *exchange) compare(back made) (result, error) {
	ctx := context.Background()
	// libcudf calls page-locked and managed memory that it hands on device memory, which is not valid and works.
	if back.DeviceID().Type != device.CUDA || x.job.form != pinned && x.job.form != managed {
		if err := back.ValidateFull(ctx); err != nil {
			return result{}, fmt.Errorf("the array of the consumer is not valid: %w", err)
		}
	}
	columns, err := back.toHost(ctx)
	if err != nil {
		return result{}, err
	}
	defer func() {
		for _, c := range columns {
			c.Release()
		}
	}()
	if got, want := len(columns), int(x.want.NumCols()); x.job.form.isTable() && got != want {
		return result{different: fmt.Sprintf("%d columns, want %d", got, want)}, nil
	}
	var r result
	for i, got := range columns {
		want := x.want.Column(i)
		if !arrow.TypeEqual(want.DataType(), got.DataType()) {
			r.changed = fmt.Sprintf("%s -> %s", want.DataType(), got.DataType())
		}
		if r.different = difference(want, got); r.different != "" {
			return r, nil
		}
	}
	return r, nil
}

// exchangeTable has the exchanges that a consumer knows by number.
type exchangeTable struct {
	mu   sync.Mutex
	last uint64
	live map[uint64]*exchange
}

var exchanges = exchangeTable{live: map[uint64]*exchange{}}

func (t *exchangeTable) put(x *exchange) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	t.live[t.last] = x
	return t.last
}

func (t *exchangeTable) get(number uint64) (*exchange, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x, ok := t.live[number]
	if !ok {
		return nil, fmt.Errorf("no exchange has the number %d", number)
	}
	return x, nil
}

func (t *exchangeTable) take(number uint64) (*exchange, error) {
	x, err := t.get(number)
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.live, number)
	return x, err
}

func (t *exchangeTable) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.live)
}

// readLive completes pending frees, and returns what is alive.
func readLive() (map[string]int64, error) {
	late.Wait()
	dev, err := gpu()
	if err != nil {
		return nil, err
	}
	if err := dev.Trim(context.Background()); err != nil {
		return nil, err
	}
	s, d := cdevice.ReadStats(), dev.ReadStats()
	return map[string]int64{
		"exchanges":       int64(exchanges.count()),
		"exported_arrays": s.ExportedArrays,
		"exported_blocks": s.ExportedBlocks,
		"imported_arrays": s.ImportedArrays,
		"pinned_batches":  s.PinnedBatches,
		"readers":         s.Readers,
		"device_copies":   s.DeviceCopies,
		"device_bytes":    d.Device.Live,
		"host_bytes":      d.Pinned.Live,
		"managed_bytes":   d.Managed.Live,
		"waiting":         d.Waiting,
		"lost":            d.Lost,
	}, nil
}
