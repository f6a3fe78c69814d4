//go:build linux

package share_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/nilargs"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/share"
)

// one is a shared batch of one column, whose ticket can still be opened at the end of the test.
func one(t *testing.T) *share.Shared {
	t.Helper()
	b := numbers(t, allocator(t))
	s := issued(t, b)
	b.Release()
	t.Cleanup(func() {
		within.Eventually(t, "the owner has heard of each release", func() bool { return s.Openers() == 0 })
		require.NoError(t, s.Close())
		released(t, s)
	})
	return s
}

// A ticket that was truncated, or of which a byte was changed, is refused by name before the owner is asked.
func TestDamagedTickets(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	ticket := one(t).Ticket()
	require.NoError(t, share.Decode(ticket))
	for n := range len(ticket) {
		err := share.Decode(ticket[:n])
		require.ErrorIs(t, err, share.ErrBadTicket, "%d bytes", n)
		require.ErrorIs(t, err, arrow.ErrInvalid)
		changed := append(share.Ticket(nil), ticket...)
		changed[n] ^= 0x10
		_, err = share.Open(background, changed)
		require.ErrorIs(t, err, share.ErrBadTicket, "byte %d", n)
	}
	_, err := share.Open(background, make(share.Ticket, 65<<20))
	assert.ErrorContains(t, err, "bytes = 68157440, want at most 4194304")
}

// Tickets that nobody has issued take neither time nor memory.
func TestTicketsThatSayMuch(t *testing.T) {
	head := []byte{0xff, 0xff, 0xff, 0xff}
	for name, ticket := range map[string]share.Ticket{
		"metadata": share.WithSchema(append(head, 0, 0, 0, 0x70)),
		"pairs":    share.WithPairs(1_000_000),
		"nothing":  share.WithSchema(nil),
	} {
		t.Run(name, func(t *testing.T) {
			within.Seconds(t, "decode", func() error {
				if err := share.Decode(ticket); !errors.Is(err, share.ErrBadTicket) {
					return fmt.Errorf("got %v", err)
				}
				return nil
			})
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
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	require.NoError(t, err)
	here := strings.TrimSpace(string(boot))
	nested := []byte{}
	for range 50 {
		nested = protowire.AppendBytes([]byte{6<<3 | 2}, nested)
	}
	for name, column := range map[string]struct {
		n     int
		bytes []byte
	}{
		"columns":      {2<<20 - 100, nil},
		"buffers":      {1, bytes.Repeat([]byte{4<<3 | 2, 0}, 2<<20-100)},
		"children":     {1, bytes.Repeat([]byte{6<<3 | 2, 0}, 2<<20-100)},
		"dictionaries": {1, bytes.Repeat([]byte{7<<3 | 2, 0}, 2<<20-100)},
		"view sizes":   {1, protowire.AppendBytes([]byte{5<<3 | 2}, make([]byte, 4<<20-200))},
		"nested":       {4 << 20 / (len(nested) + 3), nested},
	} {
		t.Run(name, func(t *testing.T) {
			other, ticket := share.WithColumns("another", column.n, column.bytes), share.WithColumns(here, column.n, column.bytes)
			require.LessOrEqual(t, len(ticket), 4<<20)
			used := taken(func() {
				_, err := share.Open(background, other)
				assert.ErrorIs(t, err, share.ErrOtherHost)
			})
			assert.Less(t, used, uint64(1<<20))
			used = taken(func() { assert.ErrorIs(t, share.Decode(ticket), share.ErrBadTicket) })
			assert.LessOrEqual(t, used, uint64(20*len(ticket)), "eight times the bytes, and what AddressSanitizer adds to each allocation")
		})
	}
}

// A schema of which a byte was changed, by an owner that forges tickets, is read or refused, and takes no memory for what is not there.
func TestChangedSchemas(t *testing.T) {
	rec := everyType(t, cases.Nulls, func(cases.Case) bool { return true })
	defer rec.Release()
	b := onHost(t, rec, allocator(t))
	s := issued(t, b)
	b.Release()
	schema := share.SchemaOf(s.Ticket())
	require.NotEmpty(t, schema)
	step := 1
	if testing.Short() {
		step = 7
	}
	for i := 0; i < len(schema); i += step {
		changed := bytes.Clone(schema)
		changed[i] ^= []byte{0x01, 0x80, 0x10, 0xff, 0x7f}[i%5]
		ticket := share.WithSchema(changed)
		used := taken(func() {
			if err := share.Decode(ticket); err != nil {
				assert.ErrorIs(t, err, share.ErrBadTicket, "byte %d", i)
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
	forged := func(change func(*share.Forgery)) share.Ticket {
		t.Helper()
		f, err := share.Forged(s.Ticket(), change)
		require.NoError(t, err)
		return f
	}
	for name, c := range map[string]struct {
		change func(*share.Forgery)
		want   string
	}{
		"another host":    {func(f *share.Forgery) { f.Boot = "1234" }, share.ErrOtherHost.Error()},
		"another network": {func(f *share.Forgery) { *f.Network++ }, share.ErrOtherNetwork.Error()},
		"another socket":  {func(f *share.Forgery) { f.Socket = share.SocketName([16]byte{}) }, share.ErrOwnerGone.Error()},
		"foreign socket":  {func(f *share.Forgery) { f.Socket += "0" }, "share: ticket: socket = "},
		"another length":  {func(f *share.Forgery) { *f.Length = 3 }, "not the ticket that the owner has issued"},
		"offset beyond":   {func(f *share.Forgery) { *f.Offset = 1 << 20 }, "columns[0].buffers[1].offset = 1048576, want 32 bytes"},
		"offset before":   {func(f *share.Forgery) { *f.Offset = -8 }, "columns[0].buffers[1].offset = -8"},
		"length beyond":   {func(f *share.Forgery) { *f.Length = 1 << 40 }, "bytes in the"},
		"length":          {func(f *share.Forgery) { *f.Length = math.MaxInt64 }, "columns[0].buffers"},
		"less":            {func(f *share.Forgery) { *f.Length = -1 }, "columns[0].length = -1"},
		"another region":  {func(f *share.Forgery) { *f.Region = 2 }, "columns[0].buffers[1].region = 2, want 1 to 1"},
		"this process":    {func(f *share.Forgery) { f.Process[0]++ }, "not the ticket that the owner has issued"},
	} {
		t.Run(name, func(t *testing.T) {
			ticket := forged(c.change)
			if err := share.Decode(ticket); err != nil { // of a field, which the owner would not have issued
				assert.ErrorContains(t, err, c.want)
				assert.ErrorIs(t, err, share.ErrBadTicket)
				c.want = "not the ticket that the owner has issued"
			}
			assert.Contains(t, opens(p, ticket), c.want)
		})
	}
	_, err := share.Open(background, s.Ticket())
	assert.ErrorIs(t, err, share.ErrSameProcess)
	assert.Equal(t, s.Ticket(), forged(func(*share.Forgery) {}))
	assert.Equal(t, "opened", opens(p, s.Ticket()), "refusals have used nothing up")
	require.Equal(t, "released", told(p, "release"))
}

func anySocketName() string {
	var random [16]byte
	binary.LittleEndian.PutUint64(random[:], rand.Uint64())
	return share.SocketName(random)
}

// fakeOwner is a socket that another program listens on; serve has each connection.
func fakeOwner(t *testing.T, serve func(net.Conn)) share.Ticket {
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
	ticket, err := share.Forged(one(t).Ticket(), func(f *share.Forgery) { f.Socket, f.Process = name, [16]byte{} })
	require.NoError(t, err)
	return ticket
}

// An owner that says nothing holds an opener up until its context ends.
func TestSilentOwner(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	ticket := fakeOwner(t, func(c net.Conn) { t.Cleanup(func() { c.Close() }) })
	within.Context(t, "open", func(ctx context.Context) error {
		_, err := share.Open(ctx, ticket)
		return err
	})
	ctx, cancel := context.WithCancel(background)
	cancel()
	_, err := share.Open(ctx, ticket)
	assert.ErrorIs(t, err, context.Canceled)
}

// Without an end of the context, an opener waits for a silent owner for as long as it has patience.
func TestSilentOwnerForLong(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	ticket := fakeOwner(t, func(c net.Conn) { t.Cleanup(func() { c.Close() }) })
	share.WithTimeouts(500*time.Millisecond, func() {
		within.Seconds(t, "open", func() error {
			if _, err := share.Open(background, ticket); !errors.Is(err, os.ErrDeadlineExceeded) {
				return fmt.Errorf("got %w", err)
			}
			return nil
		})
	})
}

// An owner that answers what it should not is an error.
func TestStrangeOwners(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	for name, c := range map[string]struct{ answer, want string }{
		"ends":       {"", share.ErrOwnerGone.Error()},
		"no files":   {"\x01", "the owner has sent 0 files, want 1"},
		"used":       {"\x02", share.ErrUsed.Error()},
		"other user": {"\x04", share.ErrOtherUser.Error()},
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
			_, err := share.Open(background, ticket)
			assert.ErrorContains(t, err, c.want)
		})
	}
}

// Files that could end this process, because they are or become shorter than the ticket says, are not mapped.
func TestStrangeFiles(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	const all = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	for name, c := range map[string]struct {
		size  int64
		seals int
		want  string
	}{
		"no seals":  {1 << 20, 0, "the file has the seals 0x0, want 0x6: its size can change"},
		"can grow":  {1 << 20, unix.F_SEAL_SHRINK, "its size can change"},
		"too short": {100, all, "the file has 100 bytes, want 4096"},
		"empty":     {0, all, "the file has 0 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			file, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
			require.NoError(t, err)
			defer unix.Close(file)
			require.NoError(t, unix.Ftruncate(file, c.size))
			_, err = unix.FcntlInt(uintptr(file), unix.F_ADD_SEALS, c.seals)
			require.NoError(t, err)
			ticket := fakeOwner(t, func(conn net.Conn) {
				_, _ = conn.Read(make([]byte, 1000))
				_, _, err := conn.(*net.UnixConn).WriteMsgUnix([]byte{1}, unix.UnixRights(file), nil)
				assert.NoError(t, err)
				_, _ = conn.Read(make([]byte, 1))
				conn.Close()
			})
			_, err = share.Open(background, ticket)
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
		"Share(ctx)":             {Call: func() error { _, err := share.Share(ctx, b); return err }, Want: noContext},
		"Share(batch)":           {Call: func() error { _, err := share.Share(background, nil); return err }, Want: "batch = nil, want a batch"},
		"Share(opts...)":         {Call: func() error { r, err := share.Share(background, b, nil); return closed(r, err) }, Want: "share: Share: opts[0] = nil, want an option"},
		"Shared.WaitOpened(ctx)": {Call: func() error { return s.WaitOpened(ctx) }, Want: noContext},
		"Shared.Wait(ctx)":       {Call: func() error { return s.Wait(ctx) }, Want: noContext},
		"Open(ctx)":              {Call: func() error { _, err := share.Open(ctx, s.Ticket()); return err }, Want: noContext},
		"Open(opts...)":          {Call: func() error { _, err := share.Open(background, nil, nil); return err }, Want: "share: Open: opts[0] = nil, want an option"},
		"WithOwnerGone(f)":       {Call: func() error { _, err := share.Open(background, s.Ticket(), share.WithOwnerGone(nil)); return err }, Want: "f = nil, want a function"},
		"WithPinnedMapping(gpu)": {Call: func() error { _, err := share.Open(background, s.Ticket(), share.WithPinnedMapping(nil)); return err }, Want: "WithPinnedMapping: gpu = nil, want a GPU"},
		"WithPinnedMemory(gpu)":  {Call: func() error { _, err := share.NewAllocator(share.WithPinnedMemory(nil)); return err }, Want: "WithPinnedMemory: gpu = nil, want a GPU"},
		"NewAllocator(opts...)":  {Call: func() error { _, err := share.NewAllocator(nil); return err }, Want: "share: NewAllocator: opts[0] = nil, want an option"},
	})
}

func closed(s *share.Shared, err error) error {
	if err == nil {
		err = s.Close()
	}
	return err
}

func TestOptions(t *testing.T) {
	b := numbers(t, allocator(t))
	defer b.Release()
	_, err := share.Share(background, b, share.WithOpeners(0))
	assert.ErrorContains(t, err, "WithOpeners(0), want at least 1")
	ctx, cancel := context.WithCancel(background)
	cancel()
	_, err = share.Share(ctx, b)
	assert.ErrorIs(t, err, context.Canceled)
	other, err := cdevice.WrapRecordBatch(nil, device.CPUDevice())
	assert.Error(t, err)
	assert.Nil(t, other)
}

// A device that cannot page-lock memory is refused by the option that names it.
func TestPinningNeedsARegistrar(t *testing.T) {
	_, err := share.NewAllocator(share.WithPinnedMemory(device.CPUDevice()))
	assert.ErrorContains(t, err, "share: NewAllocator: WithPinnedMemory: gpu is a device.host, want a device that page-locks host memory")
	assert.ErrorIs(t, err, device.ErrNotSupported)
	_, err = share.Open(background, nil, share.WithPinnedMapping(device.CPUDevice()))
	assert.ErrorContains(t, err, "share: Open: WithPinnedMapping: gpu is a device.host")
	assert.ErrorIs(t, err, device.ErrNotSupported)
}

// FuzzTicket: bytes with a checksum that fits are a ticket, or an error.
func FuzzTicket(f *testing.F) {
	f.Add([]byte{8, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := share.Decode(share.Sealed(b)); err != nil {
			require.ErrorIs(t, err, share.ErrBadTicket)
		}
	})
}

// Memory of a GPU that the opener does not see is refused before the owner is asked.
func TestGPUThatIsNotSeen(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	host := numbers(t, allocator(t))
	defer host.Release()
	there, err := host.CopyTo(background, m.GPUs[0].Shareable())
	require.NoError(t, err)
	s := issued(t, there)
	there.Release()
	other, err := share.Forged(s.Ticket(), func(f *share.Forgery) { f.UUID = []byte("another machine's")[:16] })
	require.NoError(t, err)
	p := opener(t, m.Path())
	assert.Contains(t, opens(p, other), "the memory belongs to GPU-616e6f74686572206d616368696e6527, which is not visible to this process: not supported")
	require.NoError(t, s.Close())
	released(t, s)
	require.NoError(t, m.GPUs[0].Flush(background))
}
