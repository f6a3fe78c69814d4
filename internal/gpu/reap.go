package gpu

import "time"

// The driver waits for all work of the GPU where memory is given back to it, is unregistered, or is closed
// (cuMemFree, cuMemFreeHost, cuMemHostUnregister, cuIpcCloseMemHandle), and holds up all threads meanwhile that
// enqueue work in the context. So these calls are made when the GPU is idle: after two synchronisations of the context, the
// second of which did not wait. After the first there may be work that was enqueued while it waited.

const (
	// atOnce is the most that a synchronisation of an idle GPU takes.
	atOnce = 200 * time.Microsecond
	// patience is how long memory that something holds (registered memory of the program, memory of another
	// process) waits for the GPU to be idle. Cached memory waits until it is needed.
	patience = time.Second
)

// reap ends the items that wait for an idle GPU, until there are none.
func (d *Deferred) reap() {
	const shortest, longest = time.Millisecond, 100 * time.Millisecond
	for pause := shortest; ; pause = min(2*pause, longest) {
		d.mu.Lock()
		batch := d.whenIdle
		d.whenIdle = nil
		if len(batch) == 0 {
			d.reaping = false
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
		ended := 0
		for ended < len(batch) && d.tryReap(batch[ended]) {
			ended++
		}
		if ended == len(batch) {
			pause = shortest / 2
			continue
		}
		d.mu.Lock()
		d.whenIdle = append(batch[ended:], d.whenIdle...)
		d.mu.Unlock()
		time.Sleep(pause)
	}
}

// tryReap ends an item if the GPU is idle, or if the item cannot wait for that, and reports whether it did. That all
// work is done is known by chance: no work uses the item any more.
func (d *Deferred) tryReap(one *Deferral) bool {
	gone := d.synchronize(nil)
	d.ending.Store(true)
	defer d.ending.Store(false)
	began := time.Now()
	if gone == nil {
		gone = d.synchronize(nil)
	}
	idle := time.Since(began) < atOnce
	late := !one.cached && time.Since(one.since) > patience
	if gone == nil && !idle && !late && d.needed.Load() == 0 {
		return false
	}
	d.finish(one, gone)
	return true
}
