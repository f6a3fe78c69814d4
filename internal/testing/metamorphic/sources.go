package metamorphic

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
)

// source owns the items of an iterator that may never be called.
type source struct {
	claimed atomic.Bool
	drop    func() // releases it
	of      string // the model's name of the source
}

// claim reports whether the caller is the first: the iterator, or dropUnread.
func (s *source) claim() bool { return s.claimed.CompareAndSwap(false, true) }

// dropUnread releases the items of iterators that were not called before their streams ended.
func (r *run) dropUnread(ended map[string]when) {
	for name, s := range r.sources {
		if ended[s.of] != 0 {
			delete(r.sources, name)
			if s.claim() {
				s.drop()
			}
		}
	}
}

// originals are the batches or arrays that copies stand for in this world: the model has the readers' items hold their memory.
type originals struct {
	mu      sync.Mutex
	list    [][]releaser          // of the items that are left
	current map[string][]releaser // of the current items, by reader
	over    bool
}

func (o *originals) push(all ...releaser) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over {
		releaseAll(all)
		return
	}
	o.list = append(o.list, all)
}

func (o *originals) pop() (all []releaser) {
	o.mu.Lock()
	defer o.mu.Unlock()
	all, o.list = o.list[0], o.list[1:]
	return all
}

// drop drops the originals of the items that are left.
func (o *originals) drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, all := range o.list {
		releaseAll(all)
	}
	o.list, o.over = nil, true
}

// setCurrent drops the originals of the current item of a reader, and keeps those of the next one, or nil.
func (o *originals) setCurrent(reader string, all []releaser) {
	o.mu.Lock()
	defer o.mu.Unlock()
	releaseAll(o.current[reader])
	o.current[reader] = all
}

func releaseAll(all []releaser) {
	for _, v := range all {
		v.Release()
	}
}

func retained(all []releaser) []releaser {
	for _, v := range all {
		v.Retain()
	}
	return slices.Clone(all)
}

// stand makes the originals of a reader, which are dropped when its source has ended.
func (r *run) stand(out string) *originals {
	o := &originals{current: map[string][]releaser{}}
	r.standBeside(out, o)
	r.sources[out+".originals"] = &source{of: out + ".source", drop: o.drop}
	return o
}

// standBeside gives a reader originals. That of its current item ends with the last reference to the reader, and not where it is closed.
func (r *run) standBeside(out string, o *originals) {
	r.originals[out] = o
	r.sources[out+".current"] = &source{of: currentOf(out + ".source"), drop: func() { o.setCurrent(out, nil) }}
}

// standFor gives a reader the references that are kept for its items.
func (r *run) standFor(out string, items []string) {
	if !slices.ContainsFunc(items, func(name string) bool { return len(r.kept[name]) > 0 }) {
		return
	}
	o := r.stand(out)
	for _, name := range items {
		o.push(retained(r.kept[name])...)
	}
}

// share has a reader that is made of another one, and has its items, share its originals.
func (r *run) share(out, from string) {
	if o := r.originals[from]; o != nil {
		r.standBeside(out, o)
	}
}

// pop makes the originals of the next item those of the current one, or ends the current one.
func (r *run) pop(name string, next bool) {
	o := r.originals[name]
	if o == nil {
		return
	}
	var all []releaser
	if next {
		all = o.pop()
	}
	o.setCurrent(name, all)
}

// skip drops the originals of the next item.
func (r *run) skip(name string) {
	if o := r.originals[name]; o != nil {
		releaseAll(o.pop())
	}
}

// popTo has an object keep the originals of the next item.
func (r *run) popTo(name, out string) {
	if o := r.originals[name]; o != nil {
		r.kept[out] = append(r.kept[out], o.pop()...)
	}
}

// currentTo has an object keep the originals of the current item.
func (r *run) currentTo(name, out string) {
	if o := r.originals[name]; o != nil {
		r.kept[out] = append(r.kept[out], retained(o.current[name])...)
	}
}

// gate makes a source wait.
type gate struct {
	let     func()
	waiting func() bool
	read    chan string  // the result of a goroutine that reads meanwhile; nil: none does
	after   func() error // called once the gate is open; may be nil
}

// failure is a failure of a source of the program: at an item, from 1, or never.
type failure struct {
	what   string // "error", "cut", "panic", or "beside": io.EOF beside an item
	at     int
	number int
}

func failureOf(what string, at, number int) failure { return failure{what, at, number} }

// err is the error of the source, unless it panics.
func (f failure) err() error {
	switch f.what {
	case "panic":
		panic(troubleText(f.number))
	case "beside":
		return io.EOF
	case "cut":
		return fmt.Errorf("%s: %w", troubleText(f.number), io.EOF)
	}
	return errors.New(troubleText(f.number))
}

// end is the end of a stream with the failure.
func (f failure) end() end {
	switch {
	case f.at == 0:
		return end{}
	case f.what == "panic":
		return troubleEnd("panic", f.number)
	case f.what == "beside":
		return end{"beside", int(syscall.EINVAL), ""}
	}
	return troubleEnd("trouble", f.number)
}

// usable reports whether the failure can be had here.
func (f failure) usable() bool { return !underASan || f.at == 0 || f.what != "panic" }
