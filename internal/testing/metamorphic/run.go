package metamorphic

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/foreign"
	"github.com/arrowdevice/arrowdevice/internal/testing/heap"
)

// step is an operation of a program with the model's predictions.
type step struct {
	Op
	want    string
	made    []string          // the objects that it makes
	gone    []string          // of the objects that it uses, those that have no reference afterwards
	ended   map[string]when   // the memories that have ended so far
	waiting int64             // bytes that wait for work that is held back
	uses    map[string]object // the objects that it uses, and the one that it makes, as they were before and after it
	heirOf  []string          // of the objects that it uses, those whose memories the one that it makes holds, too
}

// steps are the operations of a program that apply, and the model after them.
func steps(p Program) (all []step, m *model) {
	m = newModel()
	for _, o := range p.Ops {
		v := verbs[o.Verb]
		if v == nil {
			panic("metamorphic: no operation " + o.Verb)
		}
		s, known := step{Op: o, uses: map[string]object{}}, len(m.order)
		for _, name := range o.On {
			if used := m.objects[name]; used != nil {
				s.uses[name] = *used
			}
		}
		var ok bool
		if s.want, ok = v.expect(m, o); !ok {
			continue
		}
		for _, name := range m.order[known:] {
			if made := m.objects[name]; made.kind != memoryKind {
				s.uses[name] = *made
				s.made = append(s.made, name)
			}
		}
		for _, name := range o.On {
			if used := m.objects[name]; used != nil && used.refs == 0 {
				s.gone = append(s.gone, name)
			}
			if made := m.objects[o.Out]; made != nil && made.holdsOneOf(s.uses[name].holds) {
				s.heirOf = append(s.heirOf, name)
			}
		}
		s.ended, s.waiting = maps.Clone(m.ended), m.waiting
		all = append(all, s)
	}
	return all, m
}

// Failure is where a program in a world saw something else than it must.
type Failure struct {
	World string
	Step  string // the operation, or a check at the end
	Want  string
	Got   string
}

func (f *Failure) String() string {
	return fmt.Sprintf("in the world %q: %s\n\twant %s\n\tgot  %s", f.World, f.Step, f.Want, f.Got)
}

// run is a program that runs in a world.
type run struct {
	*setting
	values    map[string]any               // the objects of the program
	producers map[string]*foreign.Producer // by the names of their memories
	counts    map[string]func() int        // how often the other memories were released
	streams   []*foreign.Stream
	imported  map[string]*foreign.Stream // by the names of the streams, and of the readers that import them
	kept      map[string][]releaser      // references that objects have in the model, and not in this world
	held      device.Stream              // work on it is held back
	gate      *heldStream                // the same, with the event that holds it back
	work      device.Stream              // fills the memory of producers
	tables    map[string]object          // the model's objects of this operation
	notes     []string                   // texts that the model does not predict, equal in all worlds
	cleanups  []func()
	sources   map[string]*source    // things that sources of readers own, by the model's names
	wants     string                // the result that the model predicts: only the time that an operation waits may depend on it
	originals map[string]*originals // of readers whose items are copies, and not in the model
}

// value returns an object.
func value[T any](r *run, name string) T {
	v, ok := r.values[name].(T)
	if !ok {
		panic(fmt.Sprintf("metamorphic: %s is no %T but %T", name, v, r.values[name]))
	}
	return v
}

// later has f called when the program has ended and its objects are released, the last one first.
func (r *run) later(f func()) { r.cleanups = append(r.cleanups, f) }

// note keeps a detail that must be equal in all worlds.
func (r *run) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// limit is the time that an operation may take unless it waits for work that is held back.
func limit() time.Duration {
	if os.Getenv(QuickVariable) != "" {
		return 15 * time.Second
	}
	return 60 * time.Second
}

// QuickVariable is the environment variable that makes operations which hang fail sooner: while a failure is made smaller.
const QuickVariable = "METAMORPHIC_QUICK"

// Execute runs a program in an open world. It returns notes, and the first failure.
func execute(s *setting, p Program) ([]string, *Failure) {
	if s.gogc != 0 {
		defer debug.SetGCPercent(debug.SetGCPercent(s.gogc))
	}
	before := takeCensus(s)
	watch := watchStats()
	r := newRun(s)
	f := r.program(p)
	stats := watch()
	if f == nil && stats != nil {
		f = &Failure{Step: "ReadStats beside the program", Want: "no count below zero", Got: stats.Error()}
	}
	if f == nil {
		f = before.compare(s)
	}
	if f != nil {
		f.World = s.Name
	}
	return r.notes, f
}

func newRun(s *setting) *run {
	r := &run{setting: s, values: map[string]any{}, producers: map[string]*foreign.Producer{}, counts: map[string]func() int{}, kept: map[string][]releaser{}, sources: map[string]*source{}, originals: map[string]*originals{}, imported: map[string]*foreign.Stream{}}
	r.work = r.newStream(r.home)
	return r
}

func (r *run) program(p Program) *Failure {
	all, m := steps(p)
	for _, s := range all {
		r.tables = s.uses
		r.wants = s.want
		got, finished := r.within(s.Op)
		if !finished {
			return &Failure{Step: s.String(), Want: s.want, Got: got}
		}
		if got != s.want {
			r.end(p, m)
			return &Failure{Step: s.String(), Want: s.want, Got: got}
		}
		r.inherit(s)
		err := r.memories(s.ended, false)
		if err == nil {
			err = r.waits(s.waiting)
		}
		if err != nil {
			r.end(p, m)
			return &Failure{Step: "after " + s.String(), Want: "memories as the model has them", Got: err.Error()}
		}
	}
	return r.end(p, m)
}

// inherit passes the references in kept from the objects that an operation used to the one that it made.
func (r *run) inherit(s step) {
	for _, name := range s.heirOf {
		for _, v := range r.kept[name] {
			r.keep(s.Out, v)
		}
	}
	for _, name := range s.gone {
		r.drop(name)
	}
}

// drop releases the references that are kept for an object.
func (r *run) drop(name string) {
	for _, v := range r.kept[name] {
		v.Release()
	}
	delete(r.kept, name)
}

// within does an operation, and gives up when it does not end.
func (r *run) within(o Op) (got string, finished bool) {
	done := make(chan string, 1)
	do := func() {
		defer func() {
			if v := recover(); v != nil {
				done <- fmt.Sprintf("panic: %v\n%s", v, debug.Stack())
			}
		}()
		done <- verbs[o.Verb].do(r, o)
	}
	go func() {
		switch o.At {
		case "callback":
			cpeer.CallBack(do)
		case "thread":
			foreign.CallOnThread(do)
		default:
			do()
		}
	}()
	select {
	case got = <-done:
		return got, true
	case <-time.After(limit()):
		return "nothing after " + limit().String() + "\n" + stacks(), false
	}
}

// memories checks that producers are released when the model says so. At the end, all are.
func (r *run) memories(ended map[string]when, end bool) error {
	r.dropUnread(ended)
	for name, p := range r.producers {
		if err := p.Misuses(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		switch n, w := p.Ended(), ended[name]; {
		case n > 0 && w == 0 && !end:
			return fmt.Errorf("%s: released while it is in use", name)
		case n > 0 && w == behind && r.machine != nil:
			return fmt.Errorf("%s: released before the work that uses it", name)
		case n == 0 && w == soon && r.machine == nil && r.prefetch == 0:
			return fmt.Errorf("%s: not released", name)
		case n == 0 && (w == soon || w == eventual), n == 0 && end:
			if !becomes(limit(), func() bool { return p.Ended() > 0 }) {
				return fmt.Errorf("%s: not released\n%s", name, stacks())
			}
		}
		if err := p.Reap(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for name, count := range r.counts {
		switch n, w := count(), ended[name]; {
		case n > 1:
			return fmt.Errorf("%s: released %d times", name, n)
		case n > 0 && w == 0 && !end:
			return fmt.Errorf("%s: released while it is in use", name)
		case n > 0 && w == behind && r.machine != nil:
			return fmt.Errorf("%s: released before the work that uses it", name)
		case n == 0 && (w == soon || w == eventual || end):
			if !becomes(limit(), func() bool { return count() > 0 }) {
				return fmt.Errorf("%s: not released\n%s", name, stacks())
			}
		}
	}
	return nil
}

// waits checks that at least so many bytes of memory count as waiting for work: soon, since a copy may hold the memory a little longer.
func (r *run) waits(bytes int64) error {
	if r.machine == nil {
		return nil
	}
	var n int64
	enough := func() bool {
		n = 0
		for _, gpu := range r.gpus {
			n += gpu.ReadStats().WaitingBytes
		}
		return n >= bytes
	}
	if !becomes(limit(), enough) {
		return fmt.Errorf("%d bytes wait, not %d", n, bytes)
	}
	return nil
}

// end releases all that the program has, in an order that its seed decides, and checks that everything was released.
func (r *run) end(p Program, m *model) (f *Failure) {
	fail := func(step, want, got string) {
		if f == nil {
			f = &Failure{Step: step, Want: want, Got: got}
		}
	}
	if r.held != nil {
		r.fire()
		m.fire()
	}
	for _, s := range r.streams {
		s.Let()
	}
	random := rand.New(rand.NewPCG(p.Seed, 2))
	left := m.alive(kinds()...)
	random.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
	for _, o := range left {
		for o.refs > 0 {
			op := Op{Verb: "release", On: []string{o.name}, Args: []string{num(random.IntN(foreign.Ways))}}
			r.tables = map[string]object{o.name: *o}
			m.release(o)
			if _, made := r.values[o.name]; !made {
				continue // the operation that should make it has failed
			}
			got, finished := r.within(op)
			if o.refs == 0 {
				r.drop(o.name)
			}
			if got != "ok" || !finished {
				fail("at the end: "+op.String(), "ok", got)
				if !finished {
					return f
				}
			}
		}
	}
	if err := r.memories(m.ended, true); err != nil {
		fail("at the end", "every producer released", err.Error())
	}
	for _, s := range r.streams {
		if !becomes(limit(), func() bool { return s.Released() == 1 && s.Schemas() == 0 }) || s.Again() != 0 {
			fail("at the end", "a stream released once, and its schema", fmt.Sprintf("%d times, %d schemas left, %d calls afterwards", s.Released(), s.Schemas(), s.Again()))
		}
	}
	for name, p := range r.producers {
		if n := p.Schemas(); n != 0 {
			fail("at the end", "every schema released", fmt.Sprintf("%s: %d left", name, n))
		}
	}
	for _, p := range r.producers {
		if f == nil { // else it may be in use
			p.Free()
		}
	}
	for _, c := range slices.Backward(r.cleanups) {
		c()
	}
	for _, s := range r.streams {
		if f == nil {
			s.Free()
		}
	}
	if err := r.work.Close(); err != nil {
		fail("at the end", "the stream closed", err.Error())
	}
	if r.machine != nil {
		r.trim()
	}
	return f
}

// newStream returns a stream of a device until the program ends.
func (r *run) newStream(d device.Device) device.Stream {
	s, err := d.NewStream()
	must(err)
	return s
}

// hold holds back the work on a stream of home.
func (r *run) hold() {
	var err error
	r.gate, err = r.holdStream(r.home)
	must(err)
	r.held = r.gate.Stream
}

// fire ends that.
func (r *run) fire() {
	must(errors.Join(r.gate.fire(), r.held.Synchronize(background), r.gate.end()))
	r.held, r.gate = nil, nil
}

// lookAt declares that the host reads an array, of which a simulator knows nothing otherwise.
func (r *run) lookAt(d arrow.ArrayData) {
	if r.machine == nil {
		return
	}
	for _, b := range d.Buffers() {
		if b != nil && b.Len() > 0 {
			r.machine.HostRead(heap.AddressOf(b.Bytes()), b.Len())
		}
	}
	for _, c := range d.Children() {
		r.lookAt(c)
	}
	if d.DataType().ID() == arrow.DICTIONARY && d.Dictionary() != nil {
		r.lookAt(d.Dictionary())
	}
}

// hostWrite declares a write of the host, for producers.
func (r *run) hostWrite(p device.Ptr, size int64) {
	if r.machine != nil {
		r.machine.HostWrite(uintptr(p), int(size))
	}
}

// fetch returns a function that reads memory of a device.
func (r *run) fetch(d device.Device, thread bool) foreign.Fetch {
	switch {
	case d.ID().Type == device.CPU && thread:
		return foreign.OnThread
	case d.ID().Type == device.CPU:
		return foreign.FromHost
	case d.CPUAccessible():
		return func(address uintptr, size int) ([]byte, error) {
			r.machine.HostRead(address, size)
			return foreign.FromHost(address, size)
		}
	}
	return func(address uintptr, size int) ([]byte, error) {
		out := make([]byte, size)
		s, err := d.NewStream()
		if err != nil {
			return nil, err
		}
		defer s.Close()
		if err := d.Copy([]device.Range{{Dst: ptr(out), Src: device.Ptr(address), Size: int64(size)}}, s); err != nil {
			return nil, err
		}
		return out, s.Synchronize(background)
	}
}

// errorText names the sentinels that an error wraps, and the field that it names.
func errorText(err error) string {
	if err == nil {
		return "ok"
	}
	var parts []string
	for _, s := range sentinels {
		if is(err, s.err) && !(s.err == arrow.ErrInvalid && is(err, cdevice.ErrReleased)) { // which wraps it
			parts = append(parts, s.name)
		}
	}
	if parts == nil {
		return "another error: " + err.Error()
	}
	return "error: " + strings.Join(parts, " ")
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
