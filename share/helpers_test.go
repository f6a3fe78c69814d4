//go:build linux

package share

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
)

var background = context.Background()

// limit is how long another process may take on a busy machine.
const limit = 30 * time.Second

func allocator(t *testing.T, opts ...AllocatorOption) *Allocator {
	t.Helper()
	a, err := NewAllocator(opts...)
	require.NoError(t, err)
	t.Cleanup(func() { // page-locked memory may wait for work of the GPU
		within.Eventually(t, "memory is freed", func() bool { return a.ReadStats().Held == 0 })
	})
	return a
}

// everyType is a record batch of a column for each type.
func everyType(t *testing.T, v cases.Variant) arrow.RecordBatch {
	t.Helper()
	var fields []arrow.Field
	var columns []arrow.Array
	rows := int64(-1)
	for _, c := range cases.All() {
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

// numbersText is the text of numbers.
var numbersText = hex.EncodeToString([]byte(`[{"n":1},{"n":2},{"n":3},{"n":null}]`))

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
	if own, ok := mem.(*Allocator); ok {
		at = own.Device()
	}
	b, err := cdevice.WrapRecordBatch(copied, at)
	require.NoError(t, err)
	return b
}

// numbersOnGPU is numbers in memory of a GPU that other processes can open.
func numbersOnGPU(t *testing.T, gpu *cudaalloc.Device, opts ...cdevice.CopyOption) *cdevice.RecordBatch {
	t.Helper()
	host := numbers(t, memory.DefaultAllocator)
	defer host.Release()
	b, err := host.CopyTo(background, gpu.Shareable(), opts...)
	require.NoError(t, err)
	return b
}

func issued(t *testing.T, b *cdevice.RecordBatch, opts ...Option) *Shared {
	t.Helper()
	s, err := Share(background, b, opts...)
	require.NoError(t, err)
	return s
}

// shareAndRelease issues a ticket for a batch, and releases the batch.
func shareAndRelease(t *testing.T, b *cdevice.RecordBatch, opts ...Option) *Shared {
	t.Helper()
	defer b.Release()
	return issued(t, b, opts...)
}

// one is a shared batch of one column, whose ticket can still be opened at the end of the test.
func one(t *testing.T) *Shared {
	t.Helper()
	s := shareAndRelease(t, numbers(t, allocator(t)))
	t.Cleanup(func() {
		within.Eventually(t, "the owner has heard of each release", func() bool { return s.Openers() == 0 })
		require.NoError(t, s.Close())
		requireReleased(t, s)
	})
	return s
}

// requireReleased waits until the batch was released.
func requireReleased(t *testing.T, s *Shared) {
	t.Helper()
	ctx, cancel := context.WithTimeout(background, limit)
	defer cancel()
	require.NoError(t, s.Wait(ctx))
}

// requireHeld fails unless the batch is not released soon.
func requireHeld(t *testing.T, s *Shared, soon time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(background, soon)
	defer cancel()
	require.ErrorIs(t, s.Wait(ctx), context.DeadlineExceeded)
}

// requireEnd tells an opener to release its batches, and waits until the owner has released the batch.
func requireEnd(t *testing.T, p *otherprocess.Peer, s *Shared) {
	t.Helper()
	require.Equal(t, "released", told(p, "release"))
	requireReleased(t, s)
}

// decoded returns the content of a ticket.
func decoded(t Ticket) (*content, error) {
	c, err := t.decode()
	if err != nil {
		return nil, err
	}
	return c, c.readRest()
}

// forged returns the ticket with a changed content and a checksum that fits.
func forged(t *testing.T, ticket Ticket, change func(*content)) Ticket {
	t.Helper()
	c, err := decoded(ticket)
	require.NoError(t, err)
	change(c)
	ticket, err = c.encode()
	require.NoError(t, err)
	return ticket
}

// forOwner returns the ticket of a batch of another process, whose owner has this socket.
func forOwner(t *testing.T, socket string) Ticket {
	t.Helper()
	return forged(t, one(t).Ticket(), func(c *content) { c.socket, c.process = socket, id{} })
}

// requestOf returns the socket of a ticket, and the request that an opener sends there.
func requestOf(t *testing.T, ticket Ticket) (socket string, request []byte) {
	t.Helper()
	c, err := ticket.decode()
	require.NoError(t, err)
	return "@" + c.socket, requestFor(ticket, c)
}

// openHere is [Open] as if this process were another one than the owner's.
func openHere(ctx context.Context, t Ticket, opts ...OpenOption) (b *cdevice.RecordBatch, err error) {
	asAnotherProcess(func() { b, err = Open(ctx, t, opts...) })
	return b, err
}

// asAnotherProcess calls do as if this process were another one.
func asAnotherProcess(do func()) {
	own := thisProcess
	thisProcess = id{}
	defer func() { thisProcess = own }()
	do()
}

// withSlowOpening calls do while the driver opens no memory until let is closed. It calls begun when the driver is called.
func withSlowOpening(let <-chan struct{}, begun, do func()) {
	defer func(f func(*opened, context.Context, *content) error) { openRegions = f }(openRegions)
	openRegions = func(m *opened, _ context.Context, c *content) error {
		begun()
		<-let
		return m.open(context.Background(), c)
	}
	do()
}

// withTimeouts calls do with a timeout for handshakes, and one for replies and exits. Nothing is shared before and after it.
func withTimeouts(handshake, others time.Duration, do func()) {
	defer func(h, a, p time.Duration) {
		for range maxPending { // no connection is pending, and so none reads the timeouts
			owned.pending <- struct{}{}
		}
		for range maxPending {
			<-owned.pending
		}
		handshakeTimeout, exitTimeout, answerTimeout = h, a, p
	}(handshakeTimeout, exitTimeout, answerTimeout)
	handshakeTimeout, exitTimeout, answerTimeout = handshake, others, others
	do()
}

// TestOpener is the other process: it opens the tickets that it is told, and does what it is told with the batches.
func TestOpener(t *testing.T) {
	owner := otherprocess.Caller(t)
	cdevicetest.CheckLeaks(t)
	var open []*cdevice.RecordBatch
	var pinned []OpenOption
	gone := make(chan struct{})
	var endCapture func() error
	ownerGone := sync.OnceFunc(func() { close(gone) })
	for {
		switch owner.Read() {
		case "open pinned":
			pinned = append(pinned, WithPinnedMapping(gpu(t)))
			fallthrough
		case "open":
			ticket := readTicket(t, owner)
			b, err := Open(background, ticket, append(pinned, WithOwnerGone(ownerGone))...)
			pinned = nil
			if err != nil {
				owner.Write(err.Error())
				continue
			}
			open = append(open, b)
			owner.Write("opened")
		case "cancel":
			ticket := readTicket(t, owner)
			ctx, cancel := context.WithTimeout(background, time.Duration(rand.Int64N(int64(time.Millisecond/2))))
			b, err := Open(ctx, ticket)
			cancel()
			outcome := "opened"
			if err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				outcome = "cancelled"
				b, err = Open(background, ticket)
				for end := time.Now().Add(limit); errors.Is(err, ErrUsed) && time.Now().Before(end); {
					time.Sleep(time.Millisecond) // a busy owner has not heard of it yet
					b, err = Open(background, ticket)
				}
				require.NoError(t, err, "an opening that failed is not used up")
			}
			b.Release()
			owner.Write(outcome)
		case "read":
			rec, err := open[len(open)-1].CopyToHost(background, nil)
			if err != nil { // the owner is gone
				owner.Write("error: " + err.Error())
				continue
			}
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
			ticket := readTicket(t, owner)
			let := make(chan struct{})
			ctx, cancel := context.WithCancel(background)
			withSlowOpening(let, cancel, func() {
				_, err := Open(ctx, ticket)
				require.ErrorIs(t, err, context.Canceled)
			})
			close(let)
			sim, err := cudasim.Open(os.Getenv(cuda.PathVariable))
			require.NoError(t, err)
			within.Eventually(t, "what was opened is closed", func() bool { return gpu(t).ReadStats().Opened.Total == 1 && gpu(t).ReadStats().Opened.Live == 0 })
			require.NoError(t, gpu(t).Flush(background))
			owner.Write(fmt.Sprintf("given up, %d events", sim.Report().Live.Events))
		case "drop": // opens the ticket by itself, and closes the socket without a word
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

func readTicket(t *testing.T, p *otherprocess.Peer) Ticket {
	t.Helper()
	ticket, err := hex.DecodeString(p.Read())
	require.NoError(t, err)
	return ticket
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

func opens(p *otherprocess.Peer, ticket Ticket) string {
	return told(p, "open", hex.EncodeToString(ticket))
}
