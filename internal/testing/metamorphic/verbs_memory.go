package metamorphic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/foreign"
)

// Memory that the program allocates from a device, and frees while work uses it.

func init() {
	register(&verb{name: "allocate", weight: 5, draw: drawAllocate, expect: expectAlone, do: doAllocate})
}

func drawAllocate(g *generator) (Op, bool) {
	return Op{Args: []string{[]string{"own", "pinned", "managed", "home", "other"}[g.IntN(5)], num([]int{0, 1, 63, 64, 65, 1000, 4096, 100_000}[g.IntN(8)]),
		[]string{"free", "free", "after event"}[g.IntN(3)], num(g.IntN(200))}}, true
}

// memoryOn returns the device of a name: one of the first GPU's, or of a place.
func (r *run) memoryOn(name string) device.Device {
	switch {
	case r.machine == nil:
		return device.CPUDevice()
	case name == "own":
		return r.gpus[0]
	case name == "pinned":
		return r.gpus[0].Pinned()
	case name == "managed":
		return r.gpus[0].Managed()
	}
	return r.at(place(name))
}

// usedMemory is memory that work on one stream fills, and work on another one, which is held back, reads.
type usedMemory struct {
	*run
	dev          device.Device
	own          device.Device // the copies go there: the driver may wait for copies between memory of the host
	size         int64
	fills, reads device.Stream
}

// doAllocate frees memory before the work that reads it is done, and has other work fill memory of the same size meanwhile.
func doAllocate(r *run, o Op) string {
	u := &usedMemory{run: r, dev: r.memoryOn(o.arg(0)), size: int64(o.num(1))}
	held, err := r.holdStream(u.dev)
	if err != nil {
		return err.Error()
	}
	u.fills, u.reads = r.newStream(u.dev), held.Stream
	if kinds, ok := u.dev.(device.MemoryKinds); ok {
		u.own, err = kinds.WithMemory(device.OwnMemory)
		must(err)
	} else {
		u.own = u.dev
	}
	err = u.use(held, o.arg(2) == "after event", byte(o.num(3)))
	return seenError(errors.Join(err, held.fire(), u.reads.Synchronize(background), held.end(), u.fills.Close(), u.refuses()))
}

func (u *usedMemory) use(held *heldStream, after bool, value byte) error {
	first, err := u.filled(value)
	if err != nil {
		return err
	}
	kept, err := u.readBy(first)
	if err != nil {
		return err
	}
	if err := u.free(first, after); err != nil {
		return err
	}
	if err := first.FreeAfter(nil); err == nil {
		return errors.New("memory was freed twice")
	}
	second, err := u.filled(value + 1)
	if err != nil {
		return err
	}
	if err := errors.Join(held.fire(), u.reads.Synchronize(background)); err != nil {
		return err
	}
	return errors.Join(u.has(u.own, kept, value), u.has(u.dev, second, value+1), kept.Free(u.reads), second.FreeAfter(nil))
}

// allocate returns memory, which is aligned.
func (u *usedMemory) allocate(from device.Device, on device.Stream) (device.Memory, error) {
	m, err := from.Allocate(background, u.size, on)
	switch {
	case err != nil:
		return nil, err
	case m.Size() != u.size:
		return nil, fmt.Errorf("%d bytes, not %d", m.Size(), u.size)
	case m.Ptr()%64 != 0 || m.Ptr() == 0 && u.size > 0:
		return nil, fmt.Errorf("memory at %#x", m.Ptr())
	}
	return m, nil
}

// filled returns memory that work fills with a value.
func (u *usedMemory) filled(value byte) (device.Memory, error) {
	m, err := u.allocate(u.dev, u.fills)
	if err == nil {
		err = u.dev.(device.Memsetter).Memset(m.Ptr(), value, u.size, u.fills)
	}
	return m, err
}

// readBy has work that is held back copy memory to another one.
func (u *usedMemory) readBy(m device.Memory) (device.Memory, error) {
	e, err := u.dev.NewEvent()
	if err == nil {
		err = errors.Join(u.fills.Record(e), u.reads.WaitEvent(e), e.Close())
	}
	if err != nil {
		return nil, err
	}
	kept, err := u.allocate(u.own, u.reads)
	if err == nil {
		err = u.dev.Copy([]device.Range{{Dst: kept.Ptr(), Src: m.Ptr(), Size: u.size}}, u.reads)
	}
	return kept, err
}

// free frees memory after the work that reads it.
func (u *usedMemory) free(m device.Memory, after bool) error {
	if !after {
		return m.Free(u.reads)
	}
	e, err := u.dev.NewEvent()
	if err != nil {
		return err
	}
	return errors.Join(u.reads.Record(e), m.FreeAfter(e), e.Close())
}

// has compares memory with a value that it was filled with.
func (u *usedMemory) has(from device.Device, m device.Memory, value byte) error {
	if err := u.fills.Synchronize(background); err != nil || u.size == 0 {
		return err
	}
	fetch := foreign.Fetch(foreign.FromHost)
	if u.machine != nil {
		fetch = u.fetch(from, false)
	}
	got, err := fetch(uintptr(m.Ptr()), int(u.size))
	if err == nil && !bytes.Equal(got, bytes.Repeat([]byte{value}, int(u.size))) {
		err = fmt.Errorf("%v, not %d bytes that are %d", got, u.size, value)
	}
	return err
}

// refuses allocates what no device has.
func (u *usedMemory) refuses() error {
	ctx, cancel := context.WithTimeout(background, 2*time.Millisecond)
	defer cancel()
	for _, size := range []int64{-1, -1 << 62, 1 << 60} {
		if u.machine == nil && size > 0 {
			continue // which ends the process, as each allocation of Go that is too large
		}
		if _, err := u.dev.Allocate(ctx, size, nil); err == nil {
			return fmt.Errorf("%d bytes were allocated", size)
		}
	}
	return nil
}
