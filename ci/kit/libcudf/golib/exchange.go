//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/pyextension"
)

func init() {
	pyextension.Func("make", makeJob, pyextension.WithParams("name"),
		pyextension.WithDoc("The number of an exchange, and its array or batch. NotImplementedError: ForCuDF refuses it."))
	pyextension.Func("open_after", openAfter, pyextension.WithParams("exchange", "microseconds"))
	pyextension.Func("is_held", isHeld, pyextension.WithParams("exchange"))
	pyextension.Func("compare_array", compareArray, pyextension.WithParams("exchange", "array"))
	pyextension.Func("compare_batch", compareBatch, pyextension.WithParams("exchange", "batch"))
	pyextension.Func("rows", rows, pyextension.WithParams("exchange"))
	pyextension.Func("end", endExchange, pyextension.WithParams("exchange"))
	pyextension.Func("live", readLive, pyextension.WithDoc("The counts of exchanges and of memory, after pending frees."))
}

// exchange is an array that a consumer has, and the original that its results are compared to.
type exchange struct {
	job     job
	want    arrow.RecordBatch
	made    made
	pending *pending
}

// end waits for the work that fills the array: its memory may be in use until then.
func (x *exchange) end() error {
	err := errors.Join(x.pending.end(), x.made.Synchronize(context.Background()))
	x.made.Release()
	x.want.Release()
	return err
}

// compare checks what a consumer made of the array. It returns the type that changed, and the first difference of the values.
func (x *exchange) compare(back made) (changed, different string, err error) {
	ctx := context.Background()
	// libcudf calls page-locked and managed memory that it hands on device memory, which is not valid and works.
	if back.DeviceID().Type != device.CUDA || x.job.form != pinned && x.job.form != managed {
		if err := back.ValidateFull(ctx); err != nil {
			return "", "", fmt.Errorf("the array of the consumer is not valid: %w", err)
		}
	}
	columns, err := back.toHost(ctx)
	if err != nil {
		return "", "", err
	}
	defer releaseAll(columns)
	if got, want := len(columns), int(x.want.NumCols()); x.job.form.isTable() && got != want {
		return "", fmt.Sprintf("%d columns, want %d", got, want), nil
	}
	for i, got := range columns {
		want := x.want.Column(i)
		if !arrow.TypeEqual(want.DataType(), got.DataType()) {
			changed = fmt.Sprintf("%s -> %s", want.DataType(), got.DataType())
		}
		if different = difference(want, got); different != "" {
			break
		}
	}
	return changed, different, nil
}

// exchanges are those that a consumer knows, by number.
var (
	exchanges    sync.Map
	lastExchange atomic.Int64
)

func find(number int64) (*exchange, error) {
	x, ok := exchanges.Load(number)
	if !ok {
		return nil, fmt.Errorf("no exchange has the number %d", number)
	}
	return x.(*exchange), nil
}

// makeJob begins an exchange. The array or batch that it returns has a reference of its own, and is filled by work that is held
// back until open_after was called and its time is over.
func makeJob(name string) (int64, any, error) {
	job, err := findJob(name)
	if err != nil {
		return 0, nil, err
	}
	x, err := begin(job)
	if err != nil {
		return 0, nil, err
	}
	number := lastExchange.Add(1)
	exchanges.Store(number, x)
	return number, x.made.value(), nil
}

func openAfter(number, microseconds int64) error {
	x, err := find(number)
	if err == nil {
		x.pending.openAfter(time.Duration(microseconds) * time.Microsecond)
	}
	return err
}

func isHeld(number int64) (bool, error) {
	x, err := find(number)
	return err == nil && x.pending.held(), err
}

// compareArray returns the device that an array came back on, the type that changed, and the difference.
func compareArray(number int64, a *cdevice.Array) (string, string, string, error) {
	return compareMade(number, madeArray{a}, a.DeviceID())
}

// compareBatch is compareArray for a batch.
func compareBatch(number int64, b *cdevice.RecordBatch) (string, string, string, error) {
	return compareMade(number, madeBatch{b}, b.DeviceID())
}

func compareMade(number int64, back made, at device.ID) (string, string, string, error) {
	x, err := find(number)
	if err != nil {
		return "", "", "", err
	}
	changed, different, err := x.compare(back)
	return at.String(), changed, different, err
}

func rows(number int64) (int64, error) {
	x, err := find(number)
	if err != nil {
		return 0, err
	}
	return x.want.NumRows(), nil
}

func endExchange(number int64) error {
	x, err := find(number)
	if err != nil {
		return err
	}
	exchanges.Delete(number)
	return x.end()
}

// readLive completes pending frees, and returns what is alive, besides what pyextension counts.
func readLive() (map[string]int64, error) {
	numberedEnds.Wait()
	dev, err := gpu()
	if err != nil {
		return nil, err
	}
	if err := dev.Trim(context.Background()); err != nil {
		return nil, err
	}
	live := int64(0)
	exchanges.Range(func(any, any) bool { live++; return true })
	s := dev.ReadStats()
	return map[string]int64{
		"exchanges":     live,
		"device_bytes":  s.Device.Live,
		"host_bytes":    s.Pinned.Live,
		"managed_bytes": s.Managed.Live,
		"waiting":       s.Waiting,
		"lost":          s.Lost,
	}, nil
}
