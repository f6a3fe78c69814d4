//go:build cgo && unix

package pyextension

import (
	"encoding/binary"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

func TestNotify(t *testing.T) {
	let := make(chan struct{})
	register(t, "waits", func() { <-let })
	var pipe [2]int
	require.NoError(t, syscall.Pipe(pipe[:]))
	defer syscall.Close(pipe[0])
	defer syscall.Close(pipe[1])
	first, _ := server{}.Call(request(t, "waits"), 0)
	second, _ := server{}.Call(request(t, "waits"), 0)
	server{}.Notify(first, pipe[1])
	server{}.Notify(second, pipe[1])
	server{}.Cancel(second)
	close(let)
	var number [16]byte
	n, err := syscall.Read(pipe[0], number[:])
	require.NoError(t, err)
	require.Equal(t, 8, n, "nothing of the cancelled call")
	assert.EqualValues(t, first, binary.NativeEndian.Uint64(number[:]))
	still, _ := server{}.Wait(first, 0)
	assert.Zero(t, still)
}

// A full pipe blocks neither the end of a call nor the thread that cancels one, which is the thread that reads
// the pipe. The calls that are still waited for are told once it has room.
func TestNotifyOfAFullPipe(t *testing.T) {
	nothingIsLeft(t)
	let := make(chan struct{})
	register(t, "waits", func() { <-let })
	p := fullPipe(t)
	started := func() int64 {
		number, _ := server{}.Call(request(t, "waits"), 0)
		server{}.Notify(number, p.writer)
		return number
	}
	kept, cancelled, taken := started(), started(), started()
	ended := []*call{lookup(kept, false), lookup(cancelled, false), lookup(taken, false)}
	close(let)
	within.Seconds(t, "the end of the calls", func() error {
		for _, c := range ended {
			<-c.done
		}
		return nil
	})
	within.Seconds(t, "Notify", func() error { server{}.Notify(kept, p.writer); return nil }) // it has ended: a second number
	within.Seconds(t, "Cancel", func() error { server{}.Cancel(cancelled); return nil })
	within.Seconds(t, "Wait", func() error { server{}.Wait(taken, -1); return nil })
	var got []int64
	within.Eventually(t, "the numbers", func() bool { got = append(got, p.numbers()...); return len(got) >= 2 })
	time.Sleep(20 * again) // in which others would come
	assert.Equal(t, []int64{kept, kept}, append(got, p.numbers()...))
	server{}.Wait(kept, -1)
}

// A full pipe whose reader is closed gets no more attempts.
func TestNotifyOfAPipeWithoutAReader(t *testing.T) {
	nothingIsLeft(t)
	let := make(chan struct{})
	register(t, "waits", func() { <-let })
	p := fullPipe(t)
	number, _ := server{}.Call(request(t, "waits"), 0)
	c := lookup(number, false)
	server{}.Notify(number, p.writer)
	close(let)
	<-c.done
	p.closeReader()
	within.Eventually(t, "the last attempt", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.notify) == 0
	})
	server{}.Wait(number, -1)
}

// pipe is one as Python makes it.
type pipe struct{ reader, writer int }

// fullPipe returns a pipe without room; the numbers in it are zero.
func fullPipe(t *testing.T) *pipe {
	t.Helper()
	var ends [2]int
	require.NoError(t, syscall.Pipe(ends[:]))
	for _, end := range ends {
		require.NoError(t, syscall.SetNonblock(end, true))
	}
	p := &pipe{ends[0], ends[1]}
	t.Cleanup(func() { syscall.Close(p.writer) })
	t.Cleanup(p.closeReader)
	err := error(nil)
	for err == nil {
		_, err = syscall.Write(p.writer, make([]byte, 8))
	}
	require.ErrorIs(t, err, syscall.EAGAIN)
	return p
}

func (p *pipe) closeReader() {
	if p.reader >= 0 {
		syscall.Close(p.reader)
	}
	p.reader = -1
}

// numbers reads the pipe until it is empty, and returns the numbers that are not zero.
func (p *pipe) numbers() (numbers []int64) {
	for {
		var b [8]byte
		if n, err := syscall.Read(p.reader, b[:]); n != len(b) || err != nil {
			return numbers
		}
		if number := int64(binary.NativeEndian.Uint64(b[:])); number != 0 {
			numbers = append(numbers, number)
		}
	}
}
