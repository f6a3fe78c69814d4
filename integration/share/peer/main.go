// Command peer shares and opens batches as it is told, for tests of other implementations of package share. It reads one
// command in a line and prints one line for each:
//
//	go run ./integration/share/peer
//
//	share CASE VARIANT MEMORY OPENERS   the ticket, in hexadecimal; MEMORY is host, gpu, or busy, whose work is pending until finish
//	finish                              completes the pending work: "finished"
//	close | openers | wait SECONDS      of the batch that was shared last: closed, a number, "released" or an error
//	open TICKET SECONDS                 "opened ROWS" or an error
//	compare CASE VARIANT                "equal", or both, of the batch that was opened last
//	metadata                            of that batch
//	release                             releases all that was opened: "released"
//	gone                                waits until the owner of the batch is gone: "gone"
//	held                                descriptors and shared mappings of this process
//
// An error is "error CLASS TEXT", where CLASS is the name of an error of package share without Err, Timeout, or Error.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/share"
)

func main() {
	log.SetFlags(0)
	p := &peer{gone: make(chan struct{}, 100)}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		said, err := p.do(context.Background(), strings.Fields(lines.Text()))
		if err != nil {
			said = fmt.Sprintf("error %s %q", class(err), err)
		}
		fmt.Println(said)
	}
}

// classes are the errors that have names.
var classes = []struct {
	name string
	err  error
}{
	{"BadTicket", share.ErrBadTicket}, {"OtherHost", share.ErrOtherHost}, {"OtherUser", share.ErrOtherUser},
	{"OtherNetwork", share.ErrOtherNetwork}, {"SameProcess", share.ErrSameProcess}, {"OwnerGone", share.ErrOwnerGone},
	{"Used", share.ErrUsed}, {"NotShareable", share.ErrNotShareable}, {"NotSupported", device.ErrNotSupported},
	{"Timeout", os.ErrDeadlineExceeded}, {"Timeout", context.DeadlineExceeded}, {"Timeout", syscall.EAGAIN},
}

func class(err error) string {
	for _, c := range classes {
		if errors.Is(err, c.err) {
			return c.name
		}
	}
	return "Error"
}

type peer struct {
	shared *share.Shared
	opened []*cdevice.RecordBatch
	gone   chan struct{}
	finish func() // of the work that is pending
}

func (p *peer) do(ctx context.Context, words []string) (string, error) {
	switch {
	case len(words) == 5 && words[0] == "share":
		return p.share(ctx, words[1], words[2], words[3], words[4])
	case len(words) == 3 && words[0] == "open":
		return p.open(ctx, words[1], words[2])
	case len(words) == 3 && words[0] == "compare":
		return p.compare(ctx, words[1], words[2])
	case len(words) == 2 && words[0] == "wait":
		ctx, cancel := within(ctx, words[1])
		defer cancel()
		return "released", p.shared.Wait(ctx)
	}
	switch words[0] {
	case "close":
		return "closed", p.shared.Close()
	case "openers":
		return strconv.Itoa(p.shared.Openers()), nil
	case "metadata":
		return p.opened[len(p.opened)-1].Metadata().String(), nil
	case "release":
		for _, b := range p.opened {
			b.Release()
		}
		p.opened = nil
		return "released", nil
	case "finish":
		p.finish()
		return "finished", nil
	case "gone":
		<-p.gone
		return "gone", nil
	case "held":
		return held()
	}
	return "", fmt.Errorf("unknown command %q", words)
}

func within(ctx context.Context, seconds string) (context.Context, context.CancelFunc) {
	d, err := time.ParseDuration(seconds + "s")
	if err != nil {
		log.Fatal(err)
	}
	return context.WithTimeout(ctx, d)
}

// record is the batch of a case: of columns a and b, with metadata.
func record(name, variant string, mem memory.Allocator) (arrow.RecordBatch, error) {
	for _, c := range cases.All() {
		if c.Name != name {
			continue
		}
		a, err := c.Array(mem, cases.Variant(variant))
		if err != nil {
			return nil, err
		}
		defer a.Release()
		field := arrow.NewMetadata([]string{"of"}, []string{"field"})
		fields := []arrow.Field{{Name: "a", Type: c.Type, Nullable: true, Metadata: field}, {Name: "b", Type: c.Type, Nullable: true}}
		metadata := arrow.NewMetadata([]string{"of"}, []string{"schema"})
		return array.NewRecordBatch(arrow.NewSchema(fields, &metadata), []arrow.Array{a, a}, int64(a.Len())), nil
	}
	return nil, fmt.Errorf("no case %q", name)
}

func (p *peer) share(ctx context.Context, name, variant, where, openers string) (string, error) {
	rec, err := record(name, variant, memory.DefaultAllocator)
	if err != nil {
		return "", err
	}
	defer rec.Release()
	batch, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	if err != nil {
		return "", err
	}
	defer batch.Release()
	batch = batch.WithMetadata(arrow.NewMetadata([]string{"of", "bytes"}, []string{"batch", "\xff"}))
	defer batch.Release()
	there, err := p.shareable(ctx, batch, where)
	if err != nil {
		return "", err
	}
	defer there.Release()
	n, err := strconv.Atoi(openers)
	if err != nil {
		return "", err
	}
	if p.shared, err = share.Share(ctx, there, share.WithOpeners(n)); err != nil {
		return "", err
	}
	return hex.EncodeToString(p.shared.Ticket()), nil
}

// shareable returns a copy that can be shared.
func (p *peer) shareable(ctx context.Context, batch *cdevice.RecordBatch, where string) (*cdevice.RecordBatch, error) {
	if where != "host" {
		return p.onGPU(ctx, batch, where == "busy")
	}
	mem, err := share.NewAllocator()
	if err != nil {
		return nil, err
	}
	rec, err := batch.CopyToHost(ctx, mem)
	if err != nil {
		return nil, err
	}
	defer rec.Release()
	there, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	if err != nil {
		return nil, err
	}
	defer there.Release()
	return there.WithMetadata(batch.Metadata()), nil
}

// onGPU returns a copy in shareable memory of the GPU. The work that makes it is pending, until finish, if busy is set.
func (p *peer) onGPU(ctx context.Context, batch *cdevice.RecordBatch, busy bool) (*cdevice.RecordBatch, error) {
	gpu, err := cudaalloc.Open(0)
	if err != nil {
		return nil, err
	}
	there, err := batch.CopyTo(ctx, gpu.Shareable())
	if err != nil || !busy {
		return there, err
	}
	defer there.Release()
	stream, err := gpu.NewStream()
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	if p.finish, err = cudatest.TryHold(stream); err != nil {
		return nil, err
	}
	return there.CopyTo(ctx, gpu.Shareable(), cdevice.WithStream(stream))
}

func (p *peer) open(ctx context.Context, ticket, seconds string) (string, error) {
	t, err := hex.DecodeString(strings.TrimPrefix(ticket, "x"))
	if err != nil {
		return "", err
	}
	ctx, cancel := within(ctx, seconds)
	defer cancel()
	b, err := share.Open(ctx, t, share.WithOwnerGone(func() { p.gone <- struct{}{} }))
	if err != nil {
		return "", err
	}
	p.opened = append(p.opened, b)
	return fmt.Sprintf("opened %d", b.NumRows()), nil
}

func (p *peer) compare(ctx context.Context, name, variant string) (string, error) {
	b := p.opened[len(p.opened)-1]
	if err := b.ValidateFull(ctx); err != nil {
		return "", err
	}
	got, err := b.CopyToHost(ctx, nil)
	if err != nil {
		return "", err
	}
	defer got.Release()
	want, err := record(name, variant, memory.DefaultAllocator)
	if err != nil {
		return "", err
	}
	defer want.Release()
	for i := range 2 {
		is, wanted := got.Column(i), want.Column(i)
		left, err := is.MarshalJSON() // array.Equal compares values below a null as well
		if err != nil {
			return "", err
		}
		right, err := wanted.MarshalJSON()
		if err != nil {
			return "", err
		}
		if same := bytes.Equal(left, right) || is.Len() == 0 && wanted.Len() == 0; !same || !arrow.TypeEqual(is.DataType(), wanted.DataType(), arrow.CheckMetadata()) {
			return fmt.Sprintf("got %v: %q, want %v: %q", is.DataType(), left, wanted.DataType(), right), nil
		}
	}
	return "equal", nil
}

// held counts the descriptors and the shared mappings of this process.
func held() (string, error) {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return "", err
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d %d", len(files), strings.Count(string(maps), "/memfd:arrowdevice")), nil
}
