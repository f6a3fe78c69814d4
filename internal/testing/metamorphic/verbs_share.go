package metamorphic

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/share"
)

// Operations of batches that are offered to other processes. None opens them here: a process does not open its own, and one of its own for
// each operation takes longer than a program.

func init() {
	register(
		&verb{name: "share", weight: 2, draw: drawShare, expect: expectShare, do: doShare},
		&verb{name: "open own", weight: 2, draw: drawOpenOwn, expect: expectOpenOwn, do: doOpenOwn},
	)
	releasable[sharedKind] = releaseShared
}

// offer is a copy of a batch that is shared, and the allocator of its memory.
type offer struct {
	*share.Shared
	mem *share.Allocator
}

func drawShare(g *generator) (Op, bool) {
	b := g.one(given(isReady, hasFixedColumn), batchKind)
	if b == nil {
		return Op{}, false
	}
	return Op{Out: g.name(sharedKind), On: []string{b.name}, Args: []string{num(1 + g.IntN(3))}}, true
}

// hasFixedColumn reports whether the batch needs memory.
func hasFixedColumn(b *object) bool { return b.batch && b.bytes() > 0 }

func expectShare(m *model, o Op) (string, bool) {
	b := m.get(o.On[0], batchKind)
	if b == nil || !b.ready() || !hasFixedColumn(b) {
		return "", false
	}
	m.add(o.Out, sharedKind, object{table: b.table, at: cpu})
	return "ok", true
}

// doShare offers a copy, which lives as long as it can be opened: the copy itself is released at once.
func doShare(r *run, o Op) string {
	b := value[*cdevice.RecordBatch](r, o.On[0])
	if r.tables[o.On[0]].at == cpu { // which is no memory that other processes can open
		if shared, err := share.Share(background, b); !errors.Is(err, share.ErrNotShareable) {
			if err == nil {
				_ = shared.Close()
			}
			return fmt.Sprintf("other memory is shared: %v", err)
		}
	}
	mem, err := share.NewAllocator()
	if err != nil {
		return err.Error()
	}
	rec, err := b.CopyToHost(background, mem)
	if err != nil {
		return err.Error()
	}
	defer rec.Release()
	wrapped, err := cdevice.WrapRecordBatch(rec, mem.Device())
	if err != nil {
		return err.Error()
	}
	defer wrapped.Release()
	shared, err := share.Share(background, wrapped, share.WithOpeners(o.num(0)))
	return made(r, o.Out)(&offer{shared, mem}, err)
}

// tickets are what is opened: the ticket, or another one.
var tickets = map[string]struct {
	change func(t share.Ticket) share.Ticket
	want   error
}{
	"own":     {func(t share.Ticket) share.Ticket { return t }, share.ErrSameProcess},
	"cut":     {func(t share.Ticket) share.Ticket { return t[:len(t)/2] }, share.ErrBadTicket},
	"nothing": {func(share.Ticket) share.Ticket { return nil }, share.ErrBadTicket},
	"noise":   {func(t share.Ticket) share.Ticket { return bytes.Repeat([]byte{0xa5}, len(t)) }, share.ErrBadTicket},
}

func drawOpenOwn(g *generator) (Op, bool) {
	h := g.one(nil, sharedKind)
	if h == nil {
		return Op{}, false
	}
	return Op{On: []string{h.name}, Args: []string{[]string{"own", "cut", "nothing", "noise"}[g.IntN(4)]}}, true
}

func expectOpenOwn(m *model, o Op) (string, bool) {
	if _, ok := tickets[o.arg(0)]; !ok || m.get(o.On[0], sharedKind) == nil {
		return "", false
	}
	return "refused", true
}

func doOpenOwn(r *run, o Op) string {
	h, row := value[*offer](r, o.On[0]), tickets[o.arg(0)]
	b, err := share.Open(background, row.change(slices.Clone(h.Ticket())))
	if err == nil {
		b.Release()
	}
	if !errors.Is(err, row.want) || errors.Is(row.want, arrow.ErrInvalid) != errors.Is(err, arrow.ErrInvalid) {
		return fmt.Sprintf("not refused: %v", err)
	}
	if n := h.Openers(); n != 0 {
		return fmt.Sprintf("%d openers", n)
	}
	if h.mem.ReadStats().Held == 0 {
		return "the memory has ended"
	}
	return "refused"
}

func releaseShared(r *run, o Op) string {
	h := value[*offer](r, o.On[0])
	if err := errors.Join(h.Close(), h.Close(), h.Wait(background), h.WaitOpened(background)); err != nil {
		return err.Error()
	}
	if !becomes(limit(), func() bool { return h.mem.ReadStats().Held == 0 }) {
		return fmt.Sprintf("%d bytes are in use", h.mem.ReadStats().Held)
	}
	return "ok"
}
