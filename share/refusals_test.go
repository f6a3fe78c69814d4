//go:build linux

package share

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/protofield"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/nilargs"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// A ticket that was truncated, or of which a byte was changed, is refused by name before the owner is asked.
func TestDamagedTickets(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	ticket := one(t).Ticket()
	for n := range len(ticket) {
		changed := bytes.Clone(ticket)
		changed[n] ^= 0x10
		for _, damaged := range []Ticket{ticket[:n], changed} {
			_, err := Open(background, damaged)
			require.ErrorIs(t, err, ErrBadTicket, "byte %d", n)
			require.ErrorIs(t, err, arrow.ErrInvalid)
		}
	}
	_, err := Open(background, make(Ticket, 65<<20))
	assert.ErrorContains(t, err, "bytes = 68157440, want at most 4194304")
}

// ticketOf returns a ticket of a machine, with so many times the same field.
func ticketOf(boot string, n int, field protofield.Number, value []byte) Ticket {
	b := protofield.AppendBytes(protofield.AppendInt(nil, fieldVersion, version), fieldBoot, boot)
	for range n {
		b = protofield.AppendMessage(b, field, value)
	}
	return sealed(b)
}

// Tickets that nobody has issued take neither time nor memory.
func TestTicketsThatSayMuch(t *testing.T) {
	for name, ticket := range map[string]Ticket{
		"metadata": ticketOf("", 1, fieldSchema, []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0x70}),
		"pairs":    ticketOf("", 1_000_000, fieldMetadata, nil),
		"nothing":  ticketOf("", 1, fieldSchema, nil),
	} {
		within.Seconds(t, name, func() error {
			if _, err := decoded(ticket); !errors.Is(err, ErrBadTicket) {
				return fmt.Errorf("got %v", err)
			}
			return nil
		})
	}
}

// taken is how many bytes f allocates.
func taken(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A ticket is refused for its machine before its columns take memory, and those take no more than so many times its bytes.
func TestTicketsOfManyColumns(t *testing.T) {
	here, err := bootID()
	require.NoError(t, err)
	nested := []byte{}
	for range 50 {
		nested = protowire.AppendBytes([]byte{6<<3 | 2}, nested)
	}
	for name, column := range map[string]struct {
		n     int
		bytes []byte
	}{
		"columns":      {2<<20 - 100, nil},
		"buffers":      {1, bytes.Repeat([]byte{4<<3 | 2, 0}, 512<<10-100)},
		"children":     {1, bytes.Repeat([]byte{6<<3 | 2, 0}, 512<<10-100)},
		"dictionaries": {1, bytes.Repeat([]byte{7<<3 | 2, 0}, 512<<10-100)},
		"view sizes":   {1, protowire.AppendBytes([]byte{5<<3 | 2}, make([]byte, 1<<20-200))},
		"nested":       {1 << 20 / (len(nested) + 3), nested},
	} {
		t.Run(name, func(t *testing.T) {
			other, ticket := ticketOf("another", column.n, fieldColumn, column.bytes), ticketOf(here, column.n, fieldColumn, column.bytes)
			used := taken(func() {
				_, err := Open(background, other)
				assert.ErrorIs(t, err, ErrOtherHost)
			})
			assert.Less(t, used, uint64(256<<10))
			used = taken(func() {
				_, err := decoded(ticket)
				assert.ErrorIs(t, err, ErrBadTicket)
			})
			assert.LessOrEqual(t, used, uint64(20*len(ticket)), "eight times the bytes, and what AddressSanitizer adds to each allocation")
		})
	}
}

// A schema of which a byte was changed, by an owner that forges tickets, is read or refused, and takes little memory.
func TestChangedSchemas(t *testing.T) {
	rec := everyType(t, cases.Nulls)
	defer rec.Release()
	s := shareAndRelease(t, onHost(t, rec, allocator(t)))
	c, err := decoded(s.Ticket())
	require.NoError(t, err)
	step := 1
	if testing.Short() {
		step = 7
	}
	for i := 0; i < len(c.encoded); i += step {
		changed := bytes.Clone(c.encoded)
		changed[i] ^= []byte{0x01, 0x80, 0x10, 0xff, 0x7f}[i%5]
		ticket := ticketOf("", 1, fieldSchema, changed)
		used := taken(func() {
			if _, err := decoded(ticket); err != nil {
				assert.ErrorIs(t, err, ErrBadTicket, "byte %d", i)
			}
		})
		require.Less(t, used, uint64(4<<20), "byte %d", i)
	}
	require.NoError(t, s.Close())
}

// A forged ticket with a checksum that fits is refused: for its fields, or by the owner, which knows what it issued.
func TestForgedTickets(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	s := one(t)
	p := opener(t, "")
	const notIssued = "not the ticket that the owner has issued"
	for name, row := range map[string]struct {
		change func(*content)
		want   string
	}{
		"another host":    {func(c *content) { c.boot = "1234" }, ErrOtherHost.Error()},
		"another network": {func(c *content) { c.network++ }, ErrOtherNetwork.Error()},
		"another socket":  {func(c *content) { c.socket = socketName(id{}) }, ErrOwnerGone.Error()},
		"foreign socket":  {func(c *content) { c.socket += "0" }, "share: ticket: socket = "},
		"another length":  {func(c *content) { c.columns[0].length = 3 }, notIssued},
		"offset beyond":   {func(c *content) { c.columns[0].buffers[1].offset = 1 << 20 }, "columns[0].buffers[1].offset = 1048576, want 32 bytes"},
		"offset before":   {func(c *content) { c.columns[0].buffers[1].offset = -8 }, "columns[0].buffers[1].offset = -8"},
		"length beyond":   {func(c *content) { c.columns[0].length = 1 << 40 }, "bytes in the"},
		"length":          {func(c *content) { c.columns[0].length = math.MaxInt64 }, "columns[0].buffers"},
		"less":            {func(c *content) { c.columns[0].length = -1 }, "columns[0].length = -1"},
		"another region":  {func(c *content) { c.columns[0].buffers[1].region = 2 }, "columns[0].buffers[1].region = 2, want 1 to 1"},
		"another column":  {func(c *content) { c.columns = append(c.columns, c.columns[0]) }, "columns = 2, want 1, one for each field of the schema"},
		"deep": {func(c *content) {
			c.metadata = arrow.NewMetadata([]string{"k"}, []string{strings.Repeat("v", 20_000)}) // its bytes pay for the arrays
			n := &c.columns[0]
			for range maxDepth + 1 {
				n.children = []node{{}}
				n = &n.children[0]
			}
		}, "nested too deeply"},
		"this process": {func(c *content) { c.process[0]++ }, notIssued},
	} {
		t.Run(name, func(t *testing.T) {
			ticket := forged(t, s.Ticket(), row.change)
			if _, err := decoded(ticket); err != nil { // of a field, which the owner would not have issued
				assert.ErrorContains(t, err, row.want)
				assert.ErrorIs(t, err, ErrBadTicket)
				row.want = notIssued
			}
			assert.Contains(t, opens(p, ticket), row.want)
		})
	}
	_, err := Open(background, s.Ticket())
	assert.ErrorIs(t, err, ErrSameProcess)
	assert.Equal(t, s.Ticket(), forged(t, s.Ticket(), func(*content) {}))
	assert.Equal(t, "opened", opens(p, s.Ticket()), "refusals have used nothing up")
	require.Equal(t, "released", told(p, "release"))
}

// An error about the values of a dictionary names the dictionary, not a child.
func TestErrorsNameTheDictionary(t *testing.T) {
	rec := everyType(t, cases.Nulls)
	defer rec.Release()
	s := shareAndRelease(t, onHost(t, rec, allocator(t)))
	checked := 0
	for i, f := range rec.Schema().Fields() {
		if f.Type.ID() != arrow.DICTIONARY {
			continue
		}
		checked++
		_, err := decoded(forged(t, s.Ticket(), func(c *content) { c.columns[i].dictionary.length = -1 }))
		assert.ErrorContains(t, err, fmt.Sprintf("share: ticket: columns[%d].dictionary.length = -1", i))
		_, err = decoded(forged(t, s.Ticket(), func(c *content) { c.columns[i].dictionary = nil }))
		assert.ErrorContains(t, err, fmt.Sprintf("columns[%d].children = 0, want 1", i))
	}
	assert.NotZero(t, checked)
	require.NoError(t, s.Close())
}

func anySocketName() string {
	var random id
	_, _ = rand.Read(random[:])
	return socketName(random)
}

// fakeOwner is a socket that another program listens on; serve has each connection.
func fakeOwner(t *testing.T, serve func(net.Conn)) Ticket {
	t.Helper()
	name := anySocketName()
	l, err := net.Listen("unixpacket", "@"+name)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.Close()) })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serve(conn)
		}
	}()
	return forOwner(t, name)
}

// An owner that says nothing holds an opener up until its context ends, or for some time.
func TestSilentOwner(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	ticket := fakeOwner(t, func(c net.Conn) { t.Cleanup(func() { c.Close() }) })
	within.Context(t, "open", func(ctx context.Context) error {
		_, err := Open(ctx, ticket)
		return err
	})
	ctx, cancel := context.WithCancel(background)
	cancel()
	_, err := Open(ctx, ticket)
	assert.ErrorIs(t, err, context.Canceled)

	// A connection that comes too late has the error of the context, not that of net, which looks at the deadline itself.
	ctx, cancel = context.WithTimeout(background, 20*time.Millisecond)
	defer cancel()
	_, err = Open(early{ctx}, ticket)
	assert.EqualError(t, err, "share: Open: context deadline exceeded")

	withTimeouts(handshakeTimeout, 500*time.Millisecond, func() {
		within.Seconds(t, "open", func() error {
			if _, err := Open(background, ticket); !errors.Is(err, os.ErrDeadlineExceeded) {
				return fmt.Errorf("got %w", err)
			}
			return nil
		})
	})
}

// early is a context whose deadline has passed a moment before it is done.
type early struct{ context.Context }

func (early) Deadline() (time.Time, bool) { return time.Now(), true }

// An unexpected reply of the owner is an error.
func TestOwnersThatReplyWrongly(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	for name, c := range map[string]struct{ answer, want string }{
		"ends":       {"", ErrOwnerGone.Error()},
		"no files":   {"\x01", "the owner has sent 0 files, want 1"},
		"used":       {"\x02", ErrUsed.Error()},
		"other user": {"\x04", ErrOtherUser.Error()},
		"unknown":    {"\x63", "the owner replied 99"},
	} {
		t.Run(name, func(t *testing.T) {
			ticket := fakeOwner(t, func(conn net.Conn) {
				_, _ = conn.Read(make([]byte, 1000))
				_, _ = conn.Write([]byte(c.answer))
				if c.answer == "" {
					conn.Close()
					return
				}
				t.Cleanup(func() { conn.Close() })
			})
			_, err := Open(background, ticket)
			assert.ErrorContains(t, err, c.want)
		})
	}
}

func TestNilArguments(t *testing.T) {
	var ctx context.Context
	s := one(t)
	b := numbers(t, allocator(t))
	defer b.Release()
	const noContext = "ctx = nil, want a context"
	nilargs.Check(t, "github.com/arrowdevice/arrowdevice/share", arrow.ErrInvalid, map[string]nilargs.Row{
		"Share(ctx)":             {Call: func() error { _, err := Share(ctx, b); return err }, Want: noContext},
		"Share(batch)":           {Call: func() error { _, err := Share(background, nil); return err }, Want: "batch = nil, want a batch"},
		"Share(opts...)":         {Call: func() error { r, err := Share(background, b, nil); return closed(r, err) }, Want: "share: Share: opts[0] = nil, want an option"},
		"Shared.WaitOpened(ctx)": {Call: func() error { return s.WaitOpened(ctx) }, Want: noContext},
		"Shared.Wait(ctx)":       {Call: func() error { return s.Wait(ctx) }, Want: noContext},
		"Open(ctx)":              {Call: func() error { _, err := Open(ctx, s.Ticket()); return err }, Want: noContext},
		"Open(opts...)":          {Call: func() error { _, err := Open(background, nil, nil); return err }, Want: "share: Open: opts[0] = nil, want an option"},
		"WithOwnerGone(f)":       {Call: func() error { _, err := Open(background, s.Ticket(), WithOwnerGone(nil)); return err }, Want: "f = nil, want a function"},
		"WithPinnedMapping(gpu)": {Call: func() error { _, err := Open(background, s.Ticket(), WithPinnedMapping(nil)); return err }, Want: "WithPinnedMapping: gpu = nil, want a GPU"},
		"WithPinnedMemory(gpu)":  {Call: func() error { _, err := NewAllocator(WithPinnedMemory(nil)); return err }, Want: "WithPinnedMemory: gpu = nil, want a GPU"},
		"NewAllocator(opts...)":  {Call: func() error { _, err := NewAllocator(nil); return err }, Want: "share: NewAllocator: opts[0] = nil, want an option"},
	})
}

// A Shared that Share has not made is an error, which no call waits for.
func TestZeroShared(t *testing.T) {
	var s Shared
	for method, call := range map[string]func() error{
		"Close":      s.Close,
		"Wait":       func() error { return s.Wait(t.Context()) },
		"WaitOpened": func() error { return s.WaitOpened(t.Context()) },
	} {
		within.Seconds(t, method, func() error {
			err := call()
			assert.EqualError(t, err, "share: Shared."+method+": the Shared was not made by Share: invalid")
			assert.ErrorIs(t, err, arrow.ErrInvalid)
			return nil
		})
	}
	assert.Zero(t, s.Openers())
	assert.Empty(t, s.Ticket())
}

func closed(s *Shared, err error) error {
	if err == nil {
		err = s.Close()
	}
	return err
}

func TestOptions(t *testing.T) {
	b := numbers(t, allocator(t))
	defer b.Release()
	_, err := Share(background, b, WithOpeners(0))
	assert.ErrorContains(t, err, "WithOpeners(0), want at least 1")
	ctx, cancel := context.WithCancel(background)
	cancel()
	_, err = Share(ctx, b)
	assert.ErrorIs(t, err, context.Canceled)
}

// A device that cannot page-lock memory is refused by the option that names it.
func TestPinningNeedsARegistrar(t *testing.T) {
	_, err := NewAllocator(WithPinnedMemory(device.CPUDevice()))
	assert.ErrorContains(t, err, "share: NewAllocator: WithPinnedMemory: gpu is a device.host, want a device that page-locks host memory")
	assert.ErrorIs(t, err, device.ErrNotSupported)
	_, err = Open(background, nil, WithPinnedMapping(device.CPUDevice()))
	assert.ErrorContains(t, err, "share: Open: WithPinnedMapping: gpu is a device.host")
	assert.ErrorIs(t, err, device.ErrNotSupported)
}

// FuzzTicket: bytes with a checksum that fits are a ticket, or an error.
func FuzzTicket(f *testing.F) {
	f.Add([]byte{8, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := decoded(sealed(b)); err != nil {
			require.ErrorIs(t, err, ErrBadTicket)
		}
	})
}

// Memory of a GPU that the opener does not see is refused before the owner is asked.
func TestGPUThatIsNotSeen(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	s := shareAndRelease(t, numbersOnGPU(t, m.GPUs[0]))
	other := forged(t, s.Ticket(), func(c *content) { c.uuid = []byte("another machine's")[:16] })
	p := opener(t, m.Path())
	assert.Contains(t, opens(p, other), "the memory belongs to GPU-616e6f74686572206d616368696e6527, which is not visible to this process: not supported")
	require.NoError(t, s.Close())
	requireReleased(t, s)
	require.NoError(t, m.GPUs[0].Flush(background))
}
