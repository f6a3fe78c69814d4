package metamorphic

import (
	"context"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

// Operations whose contexts end while they wait for work that is held back.

func init() {
	register(
		&verb{name: "expire", weight: 10, draw: drawExpire, expect: expectExpire, do: doExpire},
		&verb{name: "outwait", weight: 3, draw: drawOutwait, expect: expectOutwait, do: doOutwait, fixed: true},
	)
}

// waits are calls that read, and so wait for the event.
var waits = []string{"host view", "copy to host", "synchronize", "validate", "as cpu"}

func (g *generator) wait() string { return waits[g.IntN(len(waits))] }

func drawExpire(g *generator) (Op, bool) {
	b := g.one(given(isAwaited), batchKind, arrayKind)
	if b == nil {
		return Op{}, false
	}
	o := Op{On: []string{b.name}, Args: []string{g.wait()}}
	for range g.IntN(3) {
		o.Args = append(o.Args, g.wait())
	}
	return o, true
}

// isAwaited reports whether each of these calls waits for work that is held back: they do if some column surely has buffers.
func isAwaited(b *object) bool {
	return b.held && b.rows > 0 && slices.ContainsFunc(b.types, func(name string) bool {
		id := caseOf(name).Type.ID()
		return id != arrow.NULL && id != arrow.STRUCT && id != arrow.FIXED_SIZE_LIST && id != arrow.EXTENSION
	})
}

func expectExpire(m *model, o Op) (string, bool) {
	b := m.get(o.On[0], batchKind, arrayKind)
	if b == nil || !isAwaited(b) {
		return "", false
	}
	for _, h := range b.holds {
		h.copied = true
	}
	return "ok", true
}

// doExpire ends the contexts of calls that wait for work which is held back, one after the other. Where nothing is, on the CPU, the calls
// succeed.
func doExpire(r *run, o Op) string {
	ends := make([]chan string, len(o.Args))
	for i, how := range o.Args {
		ctx, cancel := r.ending(time.Duration(2+2*i) * time.Millisecond)
		defer cancel()
		ends[i] = r.waiting(ctx, o.On[0], how)
	}
	for i, end := range ends {
		if got := <-end; got != r.expired() {
			return o.Args[i] + " while work is held back: " + got
		}
	}
	return "ok"
}

// ending returns a context that ends while work is held back. Where nothing is, it does not end: a busy machine might be slower.
func (r *run) ending(after time.Duration) (context.Context, context.CancelFunc) {
	if r.machine == nil {
		return context.WithCancel(background)
	}
	return context.WithTimeout(background, after)
}

// expired is what a call sees whose context ends while work is held back.
func (r *run) expired() string {
	if r.machine == nil {
		return "ok"
	}
	return failed("DeadlineExceeded")
}

// waiting has another goroutine wait.
func (r *run) waiting(ctx context.Context, name, how string) chan string {
	done := make(chan string, 1)
	go func() {
		switch v := r.values[name].(type) {
		case *cdevice.RecordBatch:
			done <- errorText(awaits(ctx, r, v, how))
		case *cdevice.Array:
			done <- errorText(awaits(ctx, r, v, how))
		}
	}()
	return done
}

// awaited is a *cdevice.RecordBatch or a *cdevice.Array.
type awaited[T, H any] interface {
	whole[T, H]
	Synchronize(context.Context) error
}

// awaits makes a call that waits. What the CPU cannot access has no views.
func awaits[T awaited[T, H], H releaser](ctx context.Context, r *run, b T, how string) error {
	switch {
	case how == "copy to host":
		return releasedAtOnce(b.CopyToHost(ctx, nil))
	case how == "validate":
		return b.ValidateFull(ctx)
	case how == "host view" && r.accessible(b.DeviceID()):
		return releasedAtOnce(b.HostView(ctx))
	case how == "as cpu" && r.accessible(b.DeviceID()):
		return releasedAtOnce(b.AsCPU(ctx))
	}
	return b.Synchronize(ctx)
}

// releasedAtOnce releases the result of a call at once.
func releasedAtOnce[T releaser](made T, err error) error {
	if err == nil {
		made.Release()
	}
	return err
}

func drawOutwait(g *generator) (Op, bool) {
	b := g.one(given(isAwaited), batchKind, arrayKind)
	if b == nil {
		return Op{}, false
	}
	return Op{On: []string{b.name}, Args: []string{g.wait(), g.wait(), hows[g.IntN(len(hows))]}}, true
}

func expectOutwait(m *model, o Op) (string, bool) {
	b := m.get(o.On[0], batchKind, arrayKind)
	if b == nil || !isAwaited(b) {
		return "", false
	}
	m.fire()
	return b.String(), true
}

// doOutwait ends the context of one call that waits, while another one waits for the same work: until that is not held back any more.
func doOutwait(r *run, o Op) string {
	ctx, cancel := context.WithTimeout(background, limit())
	defer cancel()
	patient := r.waiting(ctx, o.On[0], o.arg(0))
	short, end := r.ending(2 * time.Millisecond)
	defer end()
	if got := <-r.waiting(short, o.On[0], o.arg(1)); got != r.expired() {
		return "although work is held back: " + got
	}
	if r.machine != nil {
		select {
		case got := <-patient:
			return "although another call's context has ended: " + got
		default:
		}
	}
	r.fire()
	if got := <-patient; got != "ok" {
		return got
	}
	return doRead(r, Op{On: o.On, Args: o.Args[2:]})
}
