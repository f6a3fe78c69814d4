package refcount

import (
	"fmt"
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// Lives counts the references to an object that is used again after the last one. Each of its lives has a number: a
// caller that holds no reference names the life in which it had one, and never retains the object in a later life.
// Retain after the last Release, and a Release without a reference, panic in every build. Lives must not be copied.
type Lives struct {
	word atomic.Int64 // the references, and below them the number of the life, which no Release borrows from
}

// reference is what the word has for one reference.
const reference = 1 << 32

// Begin begins the next life, with one reference, of an object without references. It is the only user of the object.
func (l *Lives) Begin() { l.word.Store(reference | int64(l.Number()+1)) }

// Number returns the number of the life. The caller holds a reference.
func (l *Lives) Number() uint32 { return uint32(l.word.Load()) }

// Retain adds a reference for a caller that holds one.
func (l *Lives) Retain(kind string) {
	if ok, _ := l.TryRetain(l.Number()); !ok {
		panic(ended(kind, "Retain after the last Release"))
	}
}

// TryRetain adds a reference in a life, and reports whether that has one. met is true if another goroutine has changed the
// count at the same time.
func (l *Lives) TryRetain(number uint32) (ok, met bool) {
	for ; ; met = true {
		was := l.word.Load()
		if uint32(was) != number || was < reference {
			return false, met
		}
		if l.word.CompareAndSwap(was, was+reference) {
			return true, met
		}
	}
}

// Alive reports whether a life has a reference.
func (l *Lives) Alive(number uint32) bool {
	now := l.word.Load()
	return uint32(now) == number && now >= reference
}

// Release drops a reference, and reports whether that was the last one of the life.
func (l *Lives) Release(kind string) (last bool) {
	now := l.word.Add(-reference)
	if now < 0 { // which is no reference to any function, so it stays
		panic(ended(kind, "Release of an object without references"))
	}
	return now < reference
}

// Sole reports whether there is exactly one reference; see [Count.Sole].
func (l *Lives) Sole() bool { return l.word.Load()/reference == 1 }

// ended is the error of a misuse after the last reference.
func ended(kind, what string) error {
	return fmt.Errorf("cdevice: %s: %s: %w", kind, what, fielderr.ErrReleased)
}
