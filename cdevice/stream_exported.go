//go:build cgo

package cdevice

import (
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/excerpt"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/items"
	"github.com/arrowdevice/arrowdevice/internal/live"
)

var exportedStreams atomic.Int64

// outStruct is a kind of struct that get_next of an exported stream fills.
type outStruct struct {
	stream string // the struct of the stream
	name   string
	end    func(out uintptr) // marks the struct at an address released: the end of the stream
}

var (
	deviceOut = &outStruct{"ArrowDeviceArrayStream", "ArrowDeviceArray", func(out uintptr) { *abi.At[abi.ArrowDeviceArray](out) = abi.ArrowDeviceArray{} }}
	plainOut  = &outStruct{"ArrowArrayStream", "ArrowArray", func(out uintptr) { *abi.At[abi.ArrowArray](out) = abi.ArrowArray{} }}
)

// exported is the Go side of an exported stream of any kind: a bridge.Stream.
type exported[T items.Counted] struct {
	reader *items.Reader[T] // a reference
	schema func(*abi.ArrowSchema) error
	out    *outStruct
	device func(item T, out *CArrowDeviceArray) error // exports an item
	plain  func(item T, out *cdata.CArrowArray) error
	failed atomic.Pointer[items.StreamEnd] // a batch that could not be exported ended the stream
	text   lastError
	origin *live.Object
}

// start takes a reference to the reader, which the release of the stream drops.
func (s *exported[T]) start() error {
	if !s.reader.Hold() {
		return exportReleased("reader")
	}
	exportedStreams.Add(1)
	s.reader.Exported()
	s.origin = live.Add("exported " + s.out.stream)
	return nil
}

func (s *exported[T]) GetSchema(out *abi.ArrowSchema) int {
	return s.text.of(func() error {
		if out == nil {
			return noOutput("ArrowSchema")
		}
		return s.schema(out)
	})
}

func (s *exported[T]) GetNext(out uintptr) int {
	defer s.reader.Use().Part() // until the item is exported
	return s.text.of(func() error {
		if out == 0 {
			return noOutput(s.out.name)
		}
		if end := s.failed.Load(); end != nil {
			return end.Err
		}
		item, err := s.reader.Pull()
		if err == io.EOF {
			s.out.end(out)
			return nil
		}
		if err != nil {
			return err
		}
		return s.give(item, out)
	})
}

// give exports an item, and takes the reference to it. If the export fails or panics, the stream
// ends, since the consumer must not take the next item for this one.
func (s *exported[T]) give(item T, out uintptr) (err error) {
	defer item.Release()
	defer func() {
		if v := recover(); v != nil {
			err = fielderr.Panic(v)
		}
		if err != nil {
			s.failed.Store(&items.StreamEnd{Err: err})
		}
	}()
	if s.out == plainOut {
		return s.plain(item, ArrayFromPtr(out))
	}
	return s.device(item, DeviceArrayFromPtr(out))
}

func (s *exported[T]) GetLastError() uintptr { return s.text.address() }

// Release ends the counts of the stream last, since the end of the reader may call a program's code
// or a producer's release callback.
func (s *exported[T]) Release() {
	why := s.reader.Ended()
	if end := s.failed.Load(); end != nil {
		why = end.Err
	}
	defer s.reader.StreamReleased(why)
	defer exportedStreams.Add(-1)
	defer s.origin.Remove()
	s.text.close()
	s.reader.Release()
}

// lastError holds the text of the last error of a stream in memory that C can read.
type lastError struct {
	mu     sync.Mutex
	text   []byte // NUL-terminated and pinned; nil if the last call had no error
	pins   runtime.Pinner
	closed bool
}

// of runs a callback and returns the code of its error, or 0. A panic is an error.
func (l *lastError) of(do func() error) (code int) {
	err := func() (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = fielderr.Panic(v)
			}
		}()
		return do()
	}()
	return l.set(err)
}

func (l *lastError) set(err error) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text != nil {
		l.pins.Unpin()
		l.text = nil
	}
	if err == nil {
		return 0
	}
	if !l.closed {
		l.text = cText(err.Error())
		l.pins.Pin(&l.text[0])
	}
	return errnoOf(err)
}

func (l *lastError) address() uintptr {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text == nil {
		return 0
	}
	return abi.AddressOf(l.text)
}

func (l *lastError) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pins.Unpin()
	l.text, l.closed = nil, true
}

// cText returns a text for C: UTF-8, NUL-terminated, and at most 64 KiB.
func cText(s string) []byte {
	valid := strings.ToValidUTF8(s[:min(len(s), excerpt.Message)], "\ufffd")
	valid = strings.ReplaceAll(valid, "\x00", "\ufffd")
	return append([]byte(excerpt.Within(valid, len(s), excerpt.Message-1)), 0)
}
