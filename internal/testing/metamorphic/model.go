package metamorphic

import (
	"slices"
)

// kind is the kind of an object of a program.
type kind string

const (
	producerKind kind = "p" // a foreign producer whose struct was not given away
	batchKind    kind = "b" // a *cdevice.RecordBatch
	arrayKind    kind = "a" // a *cdevice.Array
	recordKind   kind = "r" // an arrow.RecordBatch or arrow.Array of this library, or of package cdata
	viewKind     kind = "v" // a cdevice.ArrayView, which holds nothing
	structKind   kind = "x" // an exported struct that was not released
	memoryKind   kind = "m" // memory that no program names: of a producer whose struct was given away, of a copy
)

// place is a memory that each world has its own of.
type place string

const (
	home  place = "home"  // the memory that a world is about
	other place = "other" // another one of it
	cpu   place = "cpu"
)

// object is the model's state of an object.
type object struct {
	name  string
	kind  kind
	refs  int       // references of the program
	users int       // objects that hold it
	holds []*object // objects that it keeps alive

	table
	at    place
	plain bool // of a struct: an ArrowArray
	held  bool // its memory is filled by work that is held back
	known any  // state of the operations of one file

	repeats bool // columns may share memory, so that it may have fewer bytes than the table

	owner // of memory

	pieces bool // of a struct: a child was moved out
	loose  bool // it may hold less by now: a goroutine may have gone on
	unsure int  // of users: those that are loose
}

// owner is the model's state of a memory, which has one owner in the library.
type owner struct {
	used     bool  // work that is held back was recorded as a use
	program  bool  // the program has allocated it, and releases it
	deferred bool  // of a device: it ends after all work of that, if it is the program's; a copy, and arrow-go's, once exported
	exported bool  // in a device struct, or used on a stream that is closed
	copied   bool  // by a copy that was given up: it may end after all work of its device
	device   bool  // it ends after all work of its device
	size     int64 // bytes that count as waiting, at least
	slow     bool  // a goroutine may end it
}

func (o *object) alive() bool { return o.refs+o.users > 0 }

// holdsOneOf reports whether the object holds one of the memories, alone or in one that is joined.
func (o *object) holdsOneOf(memories []*object) bool {
	return slices.ContainsFunc(o.holds, func(h *object) bool {
		return slices.Contains(memories, h) || h.kind == memoryKind && h.holdsOneOf(memories)
	})
}

// ready reports whether a read of the object would not wait for work that is held back.
func (o *object) ready() bool { return !o.held }

// model is the expected state of a program after an operation.
type model struct {
	objects map[string]*object
	order   []string // names, as they were made
	holding bool     // work is held back
	waiting int64    // bytes of memory that wait for it, at least
	copies  int      // behind it, at most
	ended   map[string]when
	stalled map[string]bool
	behind  bool // goroutines of readers may call the driver, now and from now on
}

// when is the time at which the release of a memory is seen.
type when int

const (
	soon     when = iota + 1 // its producer is released soon
	behind                   // its producer is released after the work that is held back, and not before
	either                   // soon, or after the work that is held back
	eventual                 // its producer is released soon, by a goroutine
	perhaps                  // its producer may have been released
)

func newModel() *model {
	return &model{objects: map[string]*object{}, ended: map[string]when{}, stalled: map[string]bool{}}
}

// get returns an object that the program has a reference to.
func (m *model) get(name string, kinds ...kind) *object {
	o := m.objects[name]
	if o == nil || o.refs == 0 || !slices.Contains(kinds, o.kind) {
		return nil
	}
	return o
}

// dead returns an object that the program has released.
func (m *model) dead(name string, kinds ...kind) *object {
	o := m.objects[name]
	if o == nil || o.refs != 0 || !slices.Contains(kinds, o.kind) {
		return nil
	}
	return o
}

// add makes an object with one reference, which keeps others alive.
func (m *model) add(name string, k kind, o object, holds ...*object) *object {
	made := &o
	made.name, made.kind, made.refs, made.users, made.holds = name, k, 1, 0, nil
	made.owner, made.pieces, made.loose, made.unsure = owner{}, false, false, 0
	m.objects[name] = made
	m.order = append(m.order, name)
	for _, h := range holds {
		m.hold(made, h)
	}
	return made
}

func (m *model) hold(o, h *object) {
	o.holds = append(o.holds, h)
	h.users++
	if o.loose {
		h.unsure++
		m.slow(h)
	}
	m.recheck(h)
}

// memoryOf adds a memory that the object alone holds.
func (m *model) memoryOf(o *object) *object {
	memory := m.add(o.name+".memory", memoryKind, object{at: o.at, table: o.table})
	memory.refs = 0
	m.hold(o, memory)
	return memory
}

// release drops a reference of the program.
func (m *model) release(o *object) {
	o.refs--
	m.settle(o)
}

// settle ends an object without references.
func (m *model) settle(o *object) {
	if o.alive() {
		return
	}
	switch o.kind {
	case memoryKind:
		m.end(o)
	case sourceKind:
		m.ended[o.name], m.ended[currentOf(o.name)] = soon, soon
		m.lost(o)
	case streamKind:
		m.streamEnded(o)
	case gateKind:
		m.opened(o)
	}
	holds := o.holds
	o.holds = nil
	for _, h := range holds {
		m.dropped(o, h)
	}
}

// dropped counts a reference of o to h that is gone.
func (m *model) dropped(o, h *object) {
	h.users--
	if o.loose {
		h.unsure--
	}
	m.settle(h)
	m.recheck(h)
}

// end ends a memory, and releases those that it holds: a batch of several memories has one of its own.
func (m *model) end(o *object) {
	m.ended[o.name] = o.soon()
	if !m.holding {
		return
	}
	switch {
	case o.slow:
		m.ended[o.name] = either
		return
	case o.used || o.device || o.program && o.deferred:
		m.ended[o.name] = behind
	case o.exported || o.copied:
		m.ended[o.name] = either
	}
	if (o.used || o.exported && o.deferred) && !o.program {
		m.waiting += o.size
	}
	if m.ended[o.name] == soon {
		return
	}
	for _, h := range o.holds {
		h.used, h.exported, h.copied = h.used || o.used || o.device, h.exported || o.exported, h.copied || o.copied
		h.size = 0 // it waits in the size of o
	}
}

// soon is the when of a memory that no work uses.
func (o *object) soon() when {
	if o.slow {
		return eventual
	}
	return soon
}

// fire ends the holding back of work.
func (m *model) fire() {
	m.holding, m.waiting, m.copies = false, 0, 0
	for _, o := range m.objects {
		// The stream is closed: memory that it has used ends after all work of the device from then on.
		o.exported = o.exported || o.used
		o.held, o.used = false, false
	}
	for name, w := range m.ended {
		if w == behind || w == either {
			m.ended[name] = m.objects[name].soon()
		}
	}
}

// alive returns the names of all objects that the program has references to, in order of their making.
func (m *model) alive(kinds ...kind) (all []*object) {
	for _, name := range m.order {
		if o := m.get(name, kinds...); o != nil {
			all = append(all, o)
		}
	}
	return all
}

// Kinds of other files.
const (
	readerKind      kind = "s" // a *cdevice.RecordReader
	arrayReaderKind kind = "t" // a *cdevice.ArrayReader
	streamKind      kind = "y" // an exported C stream that was not released
	asyncKind       kind = "z" // an asynchronous stream
	tensorKind      kind = "d" // a DLPack tensor
	sharedKind      kind = "h" // a batch that is shared with other processes
)
