//go:build linux

package share

import (
	"context"
	"encoding/hex"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/otherprocess"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// Every type arrives as it is, with its schema and metadata, in host memory and in memory of a GPU, by its IPC handle.
func TestGPUEveryType(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	gpu, mem := m.GPUs[0], allocator(t)
	md := arrow.NewMetadata([]string{"k"}, []string{"v"})
	for name, copied := range map[string]func(arrow.RecordBatch) *cdevice.RecordBatch{
		"host": func(rec arrow.RecordBatch) *cdevice.RecordBatch { return onHost(t, rec, mem) },
		"GPU": func(rec arrow.RecordBatch) *cdevice.RecordBatch {
			b, err := cdevice.CopyToDevice(background, rec, gpu.Shareable())
			require.NoError(t, err)
			return b
		},
	} {
		p := opener(t, m.Path())
		for _, v := range cases.Variants {
			t.Run(name+" "+string(v), func(t *testing.T) {
				rec := everyType(t, v)
				defer rec.Release()
				b := copied(rec)
				s := shareAndRelease(t, b.WithMetadata(md))
				b.Release()
				require.Equal(t, "opened", opens(p, s.Ticket()))
				assert.Equal(t, 1, s.Openers())
				assert.Equal(t, "valid", told(p, "validate"))
				assert.Equal(t, text(t, rec), told(p, "read"))
				assert.Equal(t, hex.EncodeToString([]byte(rec.Schema().String()+md.String())), told(p, "schema"))
				requireEnd(t, p, s)
				require.NoError(t, gpu.Flush(background))
				assert.Zero(t, mem.ReadStats().Held)
				assert.Zero(t, gpu.ReadStats().Device.Live)
			})
		}
		p.Write("end")
		p.End(0)
	}
}

// Slices of memory of the allocator are shared where they are.
func TestSlicesAreSharedWhereTheyAre(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	mem := allocator(t)
	p := opener(t, "")
	b := numbers(t, mem)
	part, err := b.Slice(1, 4)
	require.NoError(t, err)
	b.Release()
	before := mem.ReadStats().Held
	s := shareAndRelease(t, part)
	assert.Equal(t, before, mem.ReadStats().Held)
	require.Equal(t, "opened", opens(p, s.Ticket()))
	assert.Equal(t, hex.EncodeToString([]byte(`[{"n":2},{"n":3},{"n":null}]`)), told(p, "read"))
	requireEnd(t, p, s)
}

// Batches without bytes: without rows, without columns, and with a column whose values have none.
func TestEmptyBatches(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	p := opener(t, "")
	mem := allocator(t)
	none := arrow.Field{Name: "none", Type: &arrow.FixedSizeBinaryType{}}
	values := array.MakeArrayOfNull(memory.DefaultAllocator, none.Type, 7)
	valid := array.NewData(none.Type, 7, []*memory.Buffer{nil, values.Data().Buffers()[1]}, nil, 0, 0)
	for _, rec := range []arrow.RecordBatch{
		array.NewRecordBatch(arrow.NewSchema(nil, nil), nil, 0),
		array.NewRecordBatch(arrow.NewSchema(nil, nil), nil, 7),
		array.NewRecordBatch(arrow.NewSchema([]arrow.Field{none}, nil), []arrow.Array{array.MakeFromData(valid)}, 7),
	} {
		s := shareAndRelease(t, onHost(t, rec, mem))
		require.Equal(t, "opened", opens(p, s.Ticket()))
		require.Equal(t, "valid", told(p, "validate"))
		requireEnd(t, p, s)
	}
}

// A ticket has room for thousands of columns.
func TestWideBatch(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	var fields []arrow.Field
	var columns []arrow.Array
	for range 50 {
		for _, c := range cases.All() {
			fields = append(fields, arrow.Field{Type: c.Type, Nullable: true})
			columns = append(columns, array.MakeArrayOfNull(memory.DefaultAllocator, c.Type, 0))
		}
	}
	rec := array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, 0)
	s := shareAndRelease(t, onHost(t, rec, allocator(t)))
	t.Logf("%d columns, %d bytes", len(columns), len(s.Ticket()))
	_, err := decoded(s.Ticket())
	assert.NoError(t, err)
	require.NoError(t, s.Close())
}

// The opener waits for the work that was pending when the batch was shared.
func TestGPUOpenerWaitsForTheEvent(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	p := opener(t, m.Path())
	stream := cudatest.NewStream(t, gpu)
	let := m.Hold(t, stream)
	s := shareAndRelease(t, numbersOnGPU(t, gpu, cdevice.WithStream(stream)))
	require.Equal(t, "opened", opens(p, s.Ticket()))
	assert.Equal(t, "false", told(p, "ready"))
	p.Write("read")
	let()
	assert.Equal(t, numbersText, p.Read())
	assert.Equal(t, "true", told(p, "ready"))
	requireEnd(t, p, s)
	require.NoError(t, gpu.Flush(background))
}

// The owner hears of a release when the opener's driver has closed the memory, which a capture puts off: until then
// work in flight may read it.
func TestGPUCaptureOfTheOpener(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	p := opener(t, m.Path())
	s := shareAndRelease(t, numbersOnGPU(t, m.GPUs[0]))
	require.Equal(t, "opened", opens(p, s.Ticket()))
	require.Equal(t, "captures", told(p, "capture"))
	require.Equal(t, "released", told(p, "release"))
	requireHeld(t, s, 100*time.Millisecond)
	assert.Equal(t, 1, s.Openers())
	require.Equal(t, "captured", told(p, "end capture"))
	requireReleased(t, s)
	p.Write("end")
	p.End(0)
	require.NoError(t, m.GPUs[0].Flush(background))
}

// Memory that other processes cannot open is refused by the name of the column, and what to do.
func TestGPUMemoryThatCannotBeShared(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	b := numbers(t, memory.DefaultAllocator)
	defer b.Release()
	_, err := Share(background, b)
	assert.ErrorIs(t, err, ErrNotShareable)
	assert.ErrorIs(t, err, device.ErrNotSupported)
	assert.ErrorContains(t, err, `columns[0] "n": buffers[0]`)
	assert.ErrorContains(t, err, "CopyToHost")
	for _, dev := range []device.Device{gpu, gpu.Managed()} {
		there, err := b.CopyTo(background, dev)
		require.NoError(t, err)
		_, err = Share(background, there)
		assert.ErrorIs(t, err, ErrNotShareable, dev.ID())
		there.Release()
	}
	require.NoError(t, gpu.Flush(background))
}

// A column of a type that an IPC schema cannot describe is refused by its name.
func TestTypesThatCannotBeShared(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	mem := allocator(t)
	int8s := arrow.PrimitiveTypes.Int8
	indices, _, err := array.FromJSON(memory.DefaultAllocator, int8s, strings.NewReader(`[0]`))
	require.NoError(t, err)
	encoded := func(values arrow.Array) arrow.Array {
		return array.NewDictionaryArray(&arrow.DictionaryType{IndexType: int8s, ValueType: values.DataType()}, indices, values)
	}
	in := func(child arrow.Array) arrow.Array {
		s, err := array.NewStructArray([]arrow.Array{child}, []string{"f"})
		require.NoError(t, err)
		return s
	}
	bools := array.NewExtensionArrayWithStorage(extensions.NewBool8Type(), indices)
	refused := func(b *cdevice.RecordBatch, want string) {
		t.Helper()
		defer b.Release()
		_, err := Share(background, b)
		assert.ErrorIs(t, err, ErrNotShareable)
		assert.ErrorContains(t, err, "share: Share: "+want)
	}
	for want, column := range map[string]arrow.Array{
		`columns[0] "d": values of a dictionary in a dictionary`:                                 encoded(encoded(indices)),
		`columns[0] "d": values of the extension type "arrow.bool8" in a dictionary`:             encoded(bools),
		`columns[0] "d".children[0]: values of the extension type "arrow.bool8" in a dictionary`: in(encoded(bools)),
	} {
		s := arrow.NewSchema([]arrow.Field{{Name: "d", Type: column.DataType()}}, nil)
		refused(onHost(t, array.NewRecordBatch(s, []arrow.Array{column}, 1), mem), want)
	}
	none := []device.Ptr{0, 0}
	for storage, want := range map[arrow.DataType]string{ // of which arrow-go makes no arrays
		encoded(indices).DataType(): `columns[0] "d": the extension type "arrow.opaque" over a dictionary`,
		bools.DataType():            `columns[0] "d": the extension type "arrow.opaque" over the extension type "arrow.bool8"`,
	} {
		s := arrow.NewSchema([]arrow.Field{{Name: "d", Type: extensions.NewOpaqueType(storage, "type", "vendor")}}, nil)
		column := cdevice.ArrayData{Buffers: none}
		if storage.ID() == arrow.DICTIONARY {
			column.Dictionary = &cdevice.ArrayData{Buffers: none}
		}
		b, err := cdevice.NewRecordBatch(device.CPUDevice(), s, 0, []cdevice.ArrayData{column}, cdevice.Lifetime{})
		require.NoError(t, err)
		refused(b, want)
	}
}

// A ticket opens as often as its owner allows, and not after Close.
func TestTicketsAreUsedUp(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	mem := allocator(t)
	p := opener(t, "")
	b := numbers(t, mem)
	defer b.Release()
	s := issued(t, b, WithOpeners(2))
	require.Equal(t, "opened", opens(p, s.Ticket()))
	within.Context(t, "wait for the second opener", s.WaitOpened)
	require.Equal(t, "opened", opens(p, s.Ticket()))
	require.NoError(t, s.WaitOpened(background))
	assert.Contains(t, opens(p, s.Ticket()), "the ticket was closed, or opened as often as it may be (WithOpeners)")
	assert.Equal(t, 2, s.Openers())
	ctx, cancel := context.WithTimeout(background, 10*time.Millisecond)
	defer cancel()
	err := s.Wait(ctx)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "2 openers")
	requireEnd(t, p, s)
	assert.Contains(t, opens(p, s.Ticket()), "its only ticket was opened as often as it may be (WithOpeners)")
	assert.NoError(t, s.Close(), "the ticket is used up, which the owner need not know")
	assert.NoError(t, s.Close(), "twice")

	withdrawn := issued(t, b)
	keeps := issued(t, b) // so that the socket stays
	require.NoError(t, withdrawn.Close())
	requireReleased(t, withdrawn)
	assert.Contains(t, opens(p, withdrawn.Ticket()), ErrUsed.Error())
	require.NoError(t, keeps.Close())
	assert.Contains(t, opens(p, keeps.Ticket()), ErrOwnerGone.Error(), "this process has no socket any more")
}

// The batch of a killed opener is released.
func TestGPUOpenerIsKilled(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	host, there := numbers(t, allocator(t)), numbersOnGPU(t, m.GPUs[0])
	defer host.Release()
	defer there.Release()
	for name, b := range map[string]*cdevice.RecordBatch{"host": host, "device": there} {
		t.Run(name, func(t *testing.T) {
			s := issued(t, b)
			p := opener(t, m.Path())
			require.Equal(t, "opened", opens(p, s.Ticket()))
			require.NoError(t, p.Process().Kill())
			requireReleased(t, s)
		})
	}
	if m.Sim != nil {
		assert.Empty(t, m.Sim.Report().Violations)
	}
}

// TestOwner is another process that shares a batch, and is killed.
func TestOwner(t *testing.T) {
	p := otherprocess.Caller(t)
	b := numbers(t, func() memory.Allocator { a, _ := NewAllocator(); return a }())
	s := issued(t, b)
	p.Write(hex.EncodeToString(s.Ticket()))
	p.Read()
}

// The opener of a killed owner is told, and keeps the host memory.
func TestOwnerIsKilled(t *testing.T) {
	owner, p := otherprocess.Start(t, "TestOwner", ""), opener(t, "")
	ticket := owner.Read()
	require.Equal(t, "opened", told(p, "open", ticket))
	owner.Kill()
	require.Equal(t, "gone", told(p, "owner gone"))
	assert.Equal(t, numbersText, told(p, "read"))
	require.Equal(t, "released", told(p, "release"))
	p.Write("end")
	p.End(0)

	late, err := hex.DecodeString(ticket)
	require.NoError(t, err)
	_, err = Open(background, late)
	assert.ErrorIs(t, err, ErrOwnerGone)
}

// An opening whose context ends, at any moment, is not used up, and holds nothing up.
func TestCancelledOpenings(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	b := numbers(t, allocator(t))
	defer b.Release()
	p := opener(t, "")
	outcomes := map[string]int{}
	for range 300 {
		s := issued(t, b)
		outcomes[told(p, "cancel", hex.EncodeToString(s.Ticket()))]++
		requireReleased(t, s)
	}
	t.Log(outcomes)
	assert.NotZero(t, outcomes["cancelled"])
}

// Goroutines share, close, wait and count, and open what others have shared.
func TestManyGoroutines(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	b := numbers(t, allocator(t))
	defer b.Release()
	const goroutines, each = 4, 25
	var all [goroutines][each]*Shared
	atOnce := func(do func(i, j int)) {
		var running sync.WaitGroup
		for i := range goroutines {
			running.Go(func() {
				for j := range each {
					do(i, j)
				}
			})
		}
		running.Wait()
	}
	atOnce(func(i, j int) {
		s, err := Share(background, b, WithOpeners(2))
		assert.NoError(t, err)
		all[i][j] = s
		if passing, err := Share(background, b); assert.NoError(t, err) {
			assert.NoError(t, passing.Close())
		}
	})
	asAnotherProcess(func() {
		atOnce(func(i, j int) {
			s := all[i][j]
			other := all[(i+1)%goroutines][j]
			opened, err := Open(background, s.Ticket())
			assert.NoError(t, err)
			assert.LessOrEqual(t, other.Openers(), 1)
			ended, cancel := context.WithCancel(background)
			cancel()
			_ = other.Wait(ended)
			opened.Release()
			assert.NoError(t, s.Close())
		})
	})
	for _, some := range all {
		for _, s := range some {
			requireReleased(t, s)
		}
	}
}

// Many openings at once, of several processes.
func TestManyOpenings(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	b := numbers(t, allocator(t))
	defer b.Release()
	const each, processes = 50, 4
	s := issued(t, b, WithOpeners(each*processes))
	var openers []*otherprocess.Peer
	for range processes {
		openers = append(openers, opener(t, ""))
	}
	var all sync.WaitGroup
	for _, p := range openers {
		all.Go(func() {
			for range each {
				p.Write("open")
				p.Write(hex.EncodeToString(s.Ticket()))
				assert.Equal(t, "opened", p.Read())
			}
		})
	}
	all.Wait()
	assert.Equal(t, each*processes, s.Openers())
	for _, p := range openers {
		assert.Equal(t, "released", told(p, "release"))
	}
	requireReleased(t, s)
}

// WaitOpened returns with the last opener, whose batch is not released yet, with Close, and with the end of its context.
func TestWaitOpened(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	b := numbers(t, allocator(t))
	defer b.Release()
	p := opener(t, "")
	opened, closed := issued(t, b), issued(t, b)
	within.Context(t, "wait for the opener", opened.WaitOpened)
	waiting := make(chan error, 2)
	go func() { waiting <- opened.WaitOpened(background) }()
	go func() { waiting <- closed.WaitOpened(background) }()
	require.Equal(t, "opened", opens(p, opened.Ticket()))
	within.Seconds(t, "wait for the opener", func() error { return <-waiting })
	assert.Equal(t, 1, opened.Openers())
	require.NoError(t, opened.Close())
	within.Context(t, "wait for the release", opened.Wait)
	requireEnd(t, p, opened)
	require.NoError(t, closed.Close())
	within.Seconds(t, "wait for Close", func() error { return <-waiting })
}
