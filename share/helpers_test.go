//go:build linux

package share_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/otherprocess"
	"github.com/arrowdevice/arrowdevice/share"
)

var background = context.Background()

// patience is how long another process may take on a busy machine.
const patience = 30 * time.Second

func allocator(t *testing.T) *share.Allocator {
	t.Helper()
	a, err := share.NewAllocator()
	require.NoError(t, err)
	t.Cleanup(func() { require.Zero(t, a.Used(), "memory that was not freed") })
	return a
}

// everyType is a record batch of a column for each type.
func everyType(t *testing.T, v cases.Variant, want func(cases.Case) bool) arrow.RecordBatch {
	t.Helper()
	var fields []arrow.Field
	var columns []arrow.Array
	rows := int64(-1)
	for _, c := range cases.All() {
		if !want(c) {
			continue
		}
		arr, err := c.Array(memory.DefaultAllocator, v)
		require.NoError(t, err)
		defer arr.Release()
		fields, columns = append(fields, arrow.Field{Name: c.Name, Type: c.Type, Nullable: true}), append(columns, arr)
		if rows < 0 || int64(arr.Len()) < rows {
			rows = int64(arr.Len())
		}
	}
	for i := range columns {
		columns[i] = array.NewSlice(columns[i], 0, rows)
		defer columns[i].Release()
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, rows)
}

// numbers is a batch of one column in host memory of the allocator.
func numbers(t *testing.T, mem memory.Allocator) *cdevice.RecordBatch {
	t.Helper()
	arr, _, err := array.FromJSON(memory.DefaultAllocator, arrow.PrimitiveTypes.Int64, strings.NewReader(`[1,2,3,null]`))
	require.NoError(t, err)
	defer arr.Release()
	rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil), []arrow.Array{arr}, 4)
	defer rec.Release()
	return onHost(t, rec, mem)
}

// onHost copies the batch to one allocation.
func onHost(t *testing.T, rec arrow.RecordBatch, mem memory.Allocator) *cdevice.RecordBatch {
	t.Helper()
	here, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	require.NoError(t, err)
	defer here.Release()
	copied, err := here.CopyToHost(background, mem)
	require.NoError(t, err)
	defer copied.Release()
	b, err := cdevice.WrapRecordBatch(copied, device.CPUDevice())
	require.NoError(t, err)
	return b
}

func issued(t *testing.T, b *cdevice.RecordBatch, opts ...share.Option) *share.Shared {
	t.Helper()
	s, err := share.Share(background, b, opts...)
	require.NoError(t, err)
	return s
}

// released waits until the batch was released.
func released(t *testing.T, s *share.Shared) {
	t.Helper()
	ctx, cancel := context.WithTimeout(background, patience)
	defer cancel()
	require.NoError(t, s.Wait(ctx))
}

// TestOpener is the other process: it opens the tickets that it is told, and does what it is told with the batches.
func TestOpener(t *testing.T) {
	owner := otherprocess.Caller(t)
	cdevicetest.CheckLeaks(t)
	var open []*cdevice.RecordBatch
	gone := make(chan struct{})
	var endCapture func() error
	for {
		switch owner.Read() {
		case "open":
			ticket, err := hex.DecodeString(owner.Read())
			require.NoError(t, err)
			b, err := share.Open(background, ticket, share.WithOwnerGone(func() { close(gone) }))
			if err != nil {
				owner.Write(err.Error())
				continue
			}
			open = append(open, b)
			owner.Write("opened")
		case "cancel":
			ticket, err := hex.DecodeString(owner.Read())
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(background, time.Duration(rand.Int64N(int64(time.Millisecond/2))))
			b, err := share.Open(ctx, ticket)
			cancel()
			outcome := "opened"
			if err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				outcome = "cancelled"
				b, err = share.Open(background, ticket)
				for end := time.Now().Add(patience); errors.Is(err, share.ErrUsed) && time.Now().Before(end); {
					time.Sleep(time.Millisecond) // a busy owner has not heard of it yet
					b, err = share.Open(background, ticket)
				}
				require.NoError(t, err, "an opening that failed is not used up")
			}
			b.Release()
			owner.Write(outcome)
		case "read":
			rec, err := open[len(open)-1].CopyToHost(background, nil)
			require.NoError(t, err)
			owner.Write(text(t, rec))
			rec.Release()
		case "validate":
			require.NoError(t, open[len(open)-1].ValidateFull(background))
			owner.Write("valid")
		case "schema":
			owner.Write(hex.EncodeToString([]byte(open[len(open)-1].Schema().String() + open[len(open)-1].Metadata().String())))
		case "ready":
			ready, err := open[len(open)-1].Ready()
			require.NoError(t, err)
			owner.Write(strconv.FormatBool(ready))
		case "capture":
			m := cudatest.One(t, cudasim.Options{})
			endCapture = m.Capture(t, cudatest.NewStream(t, m.GPUs[0]), cudatest.Global)
			owner.Write("captures")
		case "end capture":
			require.NoError(t, endCapture())
			owner.Write("captured")
		case "release":
			for _, b := range open {
				b.Release()
			}
			open = nil
			owner.Write("released")
		case "gone":
			<-gone
			rec, err := open[0].CopyToHost(background, nil)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(owner.Read(), []byte(text(t, rec)), 0o600))
			rec.Release()
			open[0].Release()
			return
		case "end":
			return
		}
	}
}

// text is a batch in a line.
func text(t *testing.T, rec arrow.RecordBatch) string {
	t.Helper()
	s := array.RecordToStructArray(rec)
	defer s.Release()
	b, err := s.MarshalJSON()
	require.NoError(t, err)
	return hex.EncodeToString(bytes.ReplaceAll(b, []byte("\n"), nil))
}

// opener is a process that opens tickets.
func opener(t *testing.T, driver string) *otherprocess.Peer {
	t.Helper()
	return otherprocess.Start(t, "TestOpener", driver)
}

func told(p *otherprocess.Peer, what ...string) string {
	for _, line := range what {
		p.Write(line)
	}
	return p.Read()
}

func opens(p *otherprocess.Peer, ticket share.Ticket) string {
	return told(p, "open", hex.EncodeToString(ticket))
}
