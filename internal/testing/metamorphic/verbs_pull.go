package metamorphic

import (
	"context"
	"fmt"
	"syscall"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/testing/foreign"
)

// Operations of asynchronous streams whose consumer is another library's.

// consumerKind is a consumer in C of an asynchronous stream.
const consumerKind kind = "u"

func init() {
	register(
		&verb{name: "consume", weight: 5, draw: drawConsume, expect: expectConsume, do: doConsume},
		&verb{name: "request", weight: 20, draw: drawRequest, expect: expectRequest, do: doRequest},
		&verb{name: "extract", weight: 16, draw: drawExtract, expect: expectExtract, do: doExtract},
		&verb{name: "cancel", weight: 6, draw: drawCancel, expect: expectCancel, do: doCancel},
	)
	releasable[consumerKind] = releaseConsumer
}

// consumer is the model's state of a consumer.
type consumer struct {
	source    *object
	requested int
	tasks     []item // that have come, and were not extracted
	came      int
	refuseAt  int
	over      bool
	canceled  bool
}

// pulled is a consumer in this world.
type pulled struct {
	foreign.AsyncConsumer
	export *cdevice.AsyncExport
	next   int // the first task that was not extracted
	// originals are those of the tasks that have come; see originals. Tasks outlive the readers that they came from.
	originals [][]releaser
	came      int
}

// arrived takes the originals of tasks that have come.
func (u *pulled) arrived(from *originals) {
	for ; from != nil && u.came < u.Tasks(); u.came++ {
		u.originals = append(u.originals, from.pop())
	}
}

// extracted returns the originals of the next task.
func (u *pulled) extracted() (all []releaser) {
	if len(u.originals) > 0 {
		all, u.originals = u.originals[0], u.originals[1:]
	}
	return all
}

func drawConsume(g *generator) (Op, bool) {
	s := g.one(given(consumable), readerKind)
	if s == nil {
		return Op{}, false
	}
	o := Op{Out: g.name(consumerKind), On: []string{s.name}, Args: []string{num(g.IntN(4)), "0", "0"}}
	if g.IntN(6) == 0 {
		o.Args[1], o.Args[2] = num(1+g.IntN(3)), num(int(syscall.EACCES))
	}
	return o, true
}

// consumable reports whether a consumer may have all that is left of a reader.
func consumable(s *object) bool { return readableByAll(s) && !s.flow().waits() }

func expectConsume(m *model, o Op) (string, bool) {
	s := m.get(o.On[0], readerKind)
	if s == nil || !consumable(s) {
		return "", false
	}
	source := m.derive(o.Out, s, func(it item) item {
		it.lags = nil
		return it
	})
	m.sent(s)
	u := m.addReader(o.Out, consumerKind, *s, source)
	c := &consumer{source: source, requested: o.num(0), refuseAt: o.num(1)}
	u.known = c
	if e, fails := s.flow().schemaFails(); fails {
		c.over = true
		m.reached(source)
		return "0 tasks, " + e.inC(), true
	}
	return m.arrive(u, c), true
}

// arrive has the requested tasks come, and describes their number, and the end of the stream if it was reached.
func (m *model) arrive(u *object, c *consumer) string {
	f := c.source.known.(*flow)
	for !c.over && c.came < c.requested && len(f.items) > 0 {
		it, _ := m.take(f)
		c.came++
		if c.came == c.refuseAt {
			c.over = true
			m.leave(it)
			m.reached(c.source)
			return fmt.Sprintf("%d tasks, released", c.came-1)
		}
		c.tasks = append(c.tasks, it)
		for _, h := range it.owns() {
			m.hold(u, h)
		}
		m.pass(it)
	}
	text := fmt.Sprintf("%d tasks", c.came)
	if !c.over && len(f.items) == 0 && f.end.what != "" {
		c.over = true
		m.reached(c.source)
		return text + ", " + f.end.inC()
	}
	if !c.over && len(f.items) == 0 {
		c.over = true
		m.reached(c.source)
		return text + ", the end"
	}
	return text
}

func doConsume(r *run, o Op) string {
	c := foreign.NewAsyncConsumer(o.num(0), o.num(1), o.num(2))
	export, err := cdevice.ExportAsync(background, value[*cdevice.RecordReader](r, o.On[0]), c.Handler())
	if err != nil {
		return errorText(err)
	}
	u := &pulled{AsyncConsumer: c, export: export}
	r.values[o.Out] = u
	r.share(o.Out, o.On[0])
	got := u.settled(r, o)
	u.arrived(r.originals[o.Out])
	return got
}

// settled waits for the state that the model predicts, and returns the last one.
func (u *pulled) settled(r *run, o Op) string {
	want := u.want(r, o)
	var got string
	becomes(limit()/3, func() bool {
		got = u.state()
		return got == want
	})
	if u.Again() != 0 {
		return got + ", and calls that must not have come"
	}
	return got
}

// want is the model's prediction; only waits look at it.
func (u *pulled) want(r *run, _ Op) string { return r.wants }

// state describes the tasks that have come, and the end.
func (u *pulled) state() string {
	released := u.Released() // before the rest is looked at
	text := fmt.Sprintf("%d tasks", u.Tasks())
	switch a, failed := u.Failed(); {
	case !u.Begun():
		return "no schema"
	case !released:
		return text
	case failed:
		return text + ", " + inC(a)
	case u.Ended():
		return text + ", the end"
	}
	return text + ", released"
}

// goesOn reports whether the stream of a consumer is known to go on.
func goesOn(u *object) bool {
	c := u.known.(*consumer)
	return !c.over && !c.source.known.(*flow).unsure
}

func drawRequest(g *generator) (Op, bool) {
	u := g.one(given(goesOn), consumerKind)
	if u == nil {
		return Op{}, false
	}
	return Op{On: []string{u.name}, Args: []string{num(1 + g.IntN(3)), []string{"here", "thread"}[g.IntN(2)]}}, true
}

func expectRequest(m *model, o Op) (string, bool) {
	u := m.get(o.On[0], consumerKind)
	if u == nil || !goesOn(u) {
		return "", false
	}
	c := u.known.(*consumer)
	c.requested += o.num(0)
	return m.arrive(u, c), true
}

func doRequest(r *run, o Op) string {
	u := value[*pulled](r, o.On[0])
	u.Request(o.num(0), o.arg(1) == "thread")
	got := u.settled(r, o)
	u.arrived(r.originals[o.On[0]])
	return got
}

func drawExtract(g *generator) (Op, bool) {
	u := g.one(given(func(u *object) bool { return len(u.known.(*consumer).tasks) > 0 }), consumerKind)
	if u == nil {
		return Op{}, false
	}
	return Op{Out: g.name(structKind), On: []string{u.name}, Args: []string{[]string{"here", "thread"}[g.IntN(2)], []string{"", "", "", "drop"}[g.IntN(4)]}}, true
}

func expectExtract(m *model, o Op) (string, bool) {
	u := m.get(o.On[0], consumerKind)
	if u == nil || len(u.known.(*consumer).tasks) == 0 {
		return "", false
	}
	c := u.known.(*consumer)
	it := c.tasks[0]
	c.tasks = c.tasks[1:]
	if o.arg(1) != "drop" {
		x := *u
		x.table, x.known, x.plain = it.table, nil, false
		m.add(o.Out, structKind, x, it.owns()...)
	}
	for _, h := range it.owns() {
		m.unhold(u, h)
	}
	return "ok", true
}

func doExtract(r *run, o Op) string {
	u := value[*pulled](r, o.On[0])
	task := u.next
	u.next++
	beside := u.extracted()
	if o.arg(1) == "drop" {
		releaseAll(beside)
		return code(u.Extract(task, nil, o.arg(0) == "thread"))
	}
	x := foreign.NewDeviceArray()
	r.later(func() { foreign.Forget(x) })
	r.values[o.Out] = x
	r.kept[o.Out] = append(r.kept[o.Out], beside...)
	return code(u.Extract(task, x, o.arg(0) == "thread"))
}

func code(n int) string {
	if n == 0 {
		return "ok"
	}
	return fmt.Sprintf("code %d", n)
}

func drawCancel(g *generator) (Op, bool) {
	u := g.one(given(goesOn), consumerKind)
	if u == nil {
		return Op{}, false
	}
	return Op{On: []string{u.name}, Args: []string{[]string{"here", "thread"}[g.IntN(2)]}}, true
}

// expectCancel ends a stream. The consumer keeps its tasks.
func expectCancel(m *model, o Op) (string, bool) {
	u := m.get(o.On[0], consumerKind)
	if u == nil || !goesOn(u) {
		return "", false
	}
	c := u.known.(*consumer)
	c.over, c.canceled = true, true
	m.loosen(c.source)
	return "canceled", true
}

func doCancel(r *run, o Op) string {
	u := value[*pulled](r, o.On[0])
	u.Cancel(o.arg(0) == "thread")
	ctx, cancel := context.WithTimeout(background, limit())
	defer cancel()
	err := u.export.Wait(ctx)
	switch {
	case err == nil || ctx.Err() != nil || !is(err, context.Canceled):
		return "the stream: " + describe(err)
	case !u.Released():
		return "the handler is not released"
	}
	return "canceled"
}

// releaseConsumer drops the tasks that are left, on both sides of the release of the handler.
func releaseConsumer(r *run, o Op) string {
	u := value[*pulled](r, o.On[0])
	if o.num(0)%2 == 0 {
		u.dropTasks(o)
	}
	if !u.Released() {
		u.Cancel(false)
	}
	if !becomes(limit(), u.Released) {
		return "the handler is not released"
	}
	u.dropTasks(o)
	again := u.Again()
	r.later(u.Free)
	if again != 0 {
		return "calls that must not have come"
	}
	return "ok"
}

func (u *pulled) dropTasks(o Op) {
	for ; u.next < u.Tasks(); u.next++ {
		u.Extract(u.next, nil, o.num(0)%3 == 0)
		releaseAll(u.extracted())
	}
}
