//go:build cgo && unix

package pyextension

import (
	"encoding/binary"
	"slices"
	"syscall"
	"time"
)

// again is the time after which a number is written once more to a pipe that was full.
const again = time.Millisecond

func (server) Notify(number int64, fd int) {
	c := lookup(number, false)
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancelled {
		return
	}
	c.notify = append(c.notify, fd)
	if c.finished {
		c.tell()
	}
}

// tell writes the number of the call to the pipes that lack it; the caller holds mu. Python reads a
// pipe on the thread that calls Cancel, so tell does not wait for room in one that is full: Python
// makes its pipes non-blocking, and a timer calls tell again.
//
// Cancel, and take, leave no pipe to write to: Python may close it then.
func (c *call) tell() {
	c.notify = slices.DeleteFunc(c.notify, c.write)
	if len(c.notify) == 0 {
		return
	}
	time.AfterFunc(again, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.tell()
	})
}

// write reports whether the number needs no further write: the pipe has it, or is gone, so that no
// reader waits for it. Only a full pipe, which is non-blocking, takes it later.
func (c *call) write(fd int) bool {
	number := binary.NativeEndian.AppendUint64(nil, uint64(c.number)) // shorter than PIPE_BUF: whole or not at all
	for {
		if _, err := syscall.Write(fd, number); err != syscall.EINTR {
			return err != syscall.EAGAIN
		}
	}
}
