//go:build linux

package share_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
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
	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/otherprocess"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/share"
)

var background = context.Background()

// patience is how long another process may take on a busy machine.
const patience = 30 * time.Second

func allocator(t *testing.T, opts ...share.AllocatorOption) *share.Allocator {
	t.Helper()
	a, err := share.NewAllocator(opts...)
	require.NoError(t, err)
	t.Cleanup(func() { // page-locked memory may wait for work of the GPU
		within.Eventually(t, "memory is freed", func() bool { return a.ReadStats().Held == 0 })
	})
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
	at := device.CPUDevice()
	if own, ok := mem.(*share.Allocator); ok {
		at = own.Device()
	}
	b, err := cdevice.WrapRecordBatch(copied, at)
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
	var pinned []share.OpenOption
	gone := make(chan struct{})
	var endCapture func() error
	ownerGone := sync.OnceFunc(func() { close(gone) })
	for {
		switch owner.Read() {
		case "open pinned":
			pinned = append(pinned, share.WithPinnedMapping(gpu(t)))
			fallthrough
		case "open":
			ticket, err := hex.DecodeString(owner.Read())
			require.NoError(t, err)
			b, err := share.Open(background, ticket, append(pinned, share.WithOwnerGone(ownerGone))...)
			pinned = nil
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
		case "device":
			owner.Write(open[len(open)-1].DeviceID().String())
		case "through gpu":
			there, err := open[len(open)-1].CopyTo(background, gpu(t))
			require.NoError(t, err)
			rec, err := there.CopyToHost(background, nil)
			require.NoError(t, err)
			owner.Write(text(t, rec))
			rec.Release()
			there.Release()
		case "owner gone":
			<-gone
			owner.Write("gone")
		case "try read":
			rec, err := open[len(open)-1].CopyToHost(background, nil)
			if err != nil {
				owner.Write("error: " + err.Error())
				continue
			}
			owner.Write(text(t, rec))
			rec.Release()
		case "flush":
			require.NoError(t, gpu(t).Flush(background))
			owner.Write("flushed")
		case "fail": // a function of the simulated driver, so many times
			function, times := owner.Read(), 0
			_, err := fmt.Sscan(owner.Read(), &times)
			require.NoError(t, err)
			sim, err := cudasim.Open(os.Getenv(cuda.PathVariable))
			require.NoError(t, err)
			sim.ResetCounters()
			sim.FailTimes(function, 1, times, 999)
			owner.Write("fails")
		case "give up": // while the driver opens the memory
			ticket, err := hex.DecodeString(owner.Read())
			require.NoError(t, err)
			let := make(chan struct{})
			ctx, cancel := context.WithCancel(background)
			share.WithSlowOpening(let, cancel, func() {
				_, err := share.Open(ctx, ticket)
				require.ErrorIs(t, err, context.Canceled)
			})
			close(let)
			sim, err := cudasim.Open(os.Getenv(cuda.PathVariable))
			require.NoError(t, err)
			within.Eventually(t, "what was opened is closed", func() bool { return gpu(t).ReadStats().Opened.Total == 1 && gpu(t).ReadStats().Opened.Live == 0 })
			require.NoError(t, gpu(t).Flush(background))
			owner.Write(fmt.Sprintf("given up, %d events", sim.Report().Live.Events))
		case "drop": // opens the ticket by itself, and closes the socket without a goodbye
			conn, err := net.Dial("unixpacket", owner.Read())
			require.NoError(t, err)
			request, err := hex.DecodeString(owner.Read())
			require.NoError(t, err)
			_, err = conn.Write(request)
			require.NoError(t, err)
			answer := make([]byte, 1)
			_, err = conn.Read(answer)
			require.NoError(t, err)
			require.NoError(t, conn.Close())
			owner.Write(fmt.Sprint("dropped after ", answer[0]))
		case "count":
			owner.Write(fmt.Sprint(counted(t)))
		case "end":
			return
		}
	}
}

// gpu is the GPU of another process.
func gpu(t *testing.T) *cudaalloc.Device {
	t.Helper()
	d, err := cudaalloc.Open(0)
	require.NoError(t, err)
	return d
}

// resources are those of a process: how many, since others come and go in their places.
type resources struct{ files, mappings, goroutines int }

// counted counts the files, the shared mappings and the goroutines of this process. The other mappings are Go's.
func counted(t *testing.T) resources {
	t.Helper()
	files, mappings := held(t)
	return resources{len(files), len(mappings), runtime.NumGoroutine()}
}

func noMore(r, than resources) bool {
	return r.files <= than.files && r.mappings <= than.mappings && r.goroutines <= than.goroutines
}

// held returns the files of this process by what they are, as "socket:[123]", and its shared mappings.
func held(t *testing.T) (files, mappings map[string]bool) {
	t.Helper()
	files, mappings = map[string]bool{}, map[string]bool{}
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, f := range list {
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil { // it is still open
			files[f.Name()+" "+to] = true
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	for line := range strings.Lines(string(maps)) {
		if fields := strings.Fields(line); strings.HasSuffix(fields[1], "s") {
			mappings[line] = true
		}
	}
	return files, mappings
}

// since returns how many are in now that were not in before.
func since(before, now map[string]bool) (n int) {
	for one := range now {
		if !before[one] {
			n++
		}
	}
	return n
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
