//go:build cgo

package cdevice

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/cstruct"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/items"
	"github.com/arrowdevice/arrowdevice/internal/live"
	"github.com/arrowdevice/arrowdevice/internal/schema"
)

// foreign is a stream that another library exported: an ArrowDeviceArrayStream or an
// ArrowArrayStream.
type foreign interface {
	name() string
	deviceType() device.Type
	check(*importOptions) error // checks the struct, before the first callback
	getSchema(*abi.ArrowSchema) int
	getNext() int
	given(*cstruct.Input) // sets the array of the last getNext
	lastError() string
	release()
}

// foreignDevice is an ArrowDeviceArrayStream and the array that get_next fills. They have no Go
// pointers in the same object: a producer that is written in Go may pass them to C, and cgo's
// checks search the whole object.
type foreignDevice struct {
	abi.ArrowDeviceArrayStream
	out CArrowDeviceArray
}

// move moves a stream into Go memory and marks the source released.
func move[S StreamStruct](stream *S) (foreign, error) {
	switch stream := any(stream).(type) {
	case *CArrowDeviceArrayStream:
		mirror := deviceStreamMirror(stream)
		if mirror == nil {
			return nil, noStream("ArrowDeviceArrayStream")
		}
		if err := cstruct.CheckDeviceStream(mirror); err != nil {
			return nil, err
		}
		s := &foreignDevice{ArrowDeviceArrayStream: *mirror}
		mirror.Release = 0
		return s, checkHeld(s.name(), s.Release)
	case *cdata.CArrowArrayStream:
		mirror := streamMirror(stream)
		if mirror == nil {
			return nil, noStream("ArrowArrayStream")
		}
		if err := cstruct.CheckPlainStream(mirror); err != nil {
			return nil, err
		}
		s := &foreignPlain{ArrowArrayStream: *mirror}
		mirror.Release = 0
		return s, checkHeld(s.name(), s.Release)
	}
	panic("unreachable")
}

func noStream(name string) error {
	return fielderr.Invalid(fielderr.OpImport, name, "NULL", "a struct to import")
}

// checkHeld returns an error for a stream that is released.
func checkHeld(name string, release uintptr) error {
	if release != 0 {
		return nil
	}
	return fielderr.NoRelease(fielderr.OpImport, name+".release")
}

func (*foreignDevice) name() string { return "ArrowDeviceArrayStream" }

func (s *foreignDevice) deviceType() device.Type { return device.Type(s.DeviceType) }

func (s *foreignDevice) check(*importOptions) error {
	if s.DeviceType <= 0 {
		return fielderr.Invalid(fielderr.OpImport, s.name()+".device_type", s.DeviceType, "the type of a device")
	}
	return checkCallbacks(s.name(), s.GetSchema, s.GetNext)
}

func (s *foreignDevice) getSchema(out *abi.ArrowSchema) int {
	return bridge.CallGetSchema(&s.ArrowDeviceArrayStream, out)
}

func (s *foreignDevice) getNext() int {
	return bridge.CallGetNext(&s.ArrowDeviceArrayStream, deviceMirror(&s.out))
}

func (s *foreignDevice) given(in *cstruct.Input) { in.SetDevice(deviceMirror(&s.out)) }

func (s *foreignDevice) lastError() string { return bridge.CallGetLastError(&s.ArrowDeviceArrayStream) }

func (s *foreignDevice) release() { bridge.CallStreamRelease(&s.ArrowDeviceArrayStream) }

// foreignPlain is an ArrowArrayStream and the array that get_next fills; see foreignDevice.
type foreignPlain struct {
	abi.ArrowArrayStream
	out abi.ArrowArray
}

func (*foreignPlain) name() string { return "ArrowArrayStream" }

func (*foreignPlain) deviceType() device.Type { return device.CPU }

func (s *foreignPlain) check(o *importOptions) error {
	if err := o.CheckPlain(); err != nil {
		return err
	}
	return checkCallbacks(s.name(), s.GetSchema, s.GetNext)
}

func (s *foreignPlain) getSchema(out *abi.ArrowSchema) int {
	return bridge.CallPlainGetSchema(&s.ArrowArrayStream, out)
}

func (s *foreignPlain) getNext() int { return bridge.CallPlainGetNext(&s.ArrowArrayStream, &s.out) }

func (s *foreignPlain) given(in *cstruct.Input) { in.SetPlain(&s.out) }

func (s *foreignPlain) lastError() string { return bridge.CallPlainGetLastError(&s.ArrowArrayStream) }

func (s *foreignPlain) release() { bridge.CallPlainStreamRelease(&s.ArrowArrayStream) }

// checkCallbacks does not ask for get_last_error, which producers without texts leave out.
func checkCallbacks(name string, getSchema, getNext uintptr) error {
	switch {
	case getSchema == 0:
		name += ".get_schema"
	case getNext == 0:
		name += ".get_next"
	default:
		return nil
	}
	return fielderr.Invalid(fielderr.OpImport, name, "NULL", "a callback")
}

// importRecordReader makes a reader of a stream, which it takes.
func importRecordReader(from foreign, opts []ImportOption) (*RecordReader, error) {
	c, err := openStream(from, opts)
	if err != nil {
		return nil, err
	}
	s, err := readSchema(c, c.opts.Schema)
	if err != nil {
		return nil, err
	}
	next := func() (*RecordBatch, error) {
		in, err := c.next()
		if err != nil {
			return nil, err
		}
		b, err := importBatch(in, s, false, &c.opts)
		return b, c.ofNext(err)
	}
	f := &items.Function[*RecordBatch]{Ask: next, StopThen: c.releaseThen}
	return newRecordReader(s, c.device, f), nil
}

// importArrayReader makes a reader of a stream, which it takes.
func importArrayReader(from foreign, opts []ImportOption) (*ArrayReader, error) {
	c, err := openStream(from, opts)
	if err != nil {
		return nil, err
	}
	field, err := readSchema(c, schema.Import)
	if err != nil {
		return nil, err
	}
	next := func() (*Array, error) {
		in, err := c.next()
		if err != nil {
			return nil, err
		}
		a, err := importArray(in, field, &c.opts)
		return a, c.ofNext(err)
	}
	f := &items.Function[*Array]{Ask: next, StopThen: c.releaseThen}
	return newArrayReader(field, c.device, f), nil
}

// cStream is a stream that another library exported, with the options of its import.
type cStream struct {
	foreign
	opts   importOptions
	device device.Type
	in     cstruct.Input // what next returns
	origin *live.Object
}

var importedStreams atomic.Int64

// openStream takes and checks the stream. On success, the caller releases it.
func openStream(from foreign, opts []ImportOption) (*cStream, error) {
	c := &cStream{foreign: from, device: from.deviceType()}
	importedStreams.Add(1)
	c.origin = live.Add("imported " + c.name())
	done := false
	defer func() { // even if an option panics
		if !done {
			c.release()
		}
	}()
	apply(fielderr.OpImport, &c.opts, &c.opts.Err, opts)
	if c.opts.Err != nil {
		return nil, c.opts.Err
	}
	if err := c.check(&c.opts); err != nil {
		return nil, err
	}
	done = true
	return c, nil
}

// next calls get_next, and returns the array, which is valid until the next call. At the end of the
// stream, it returns io.EOF.
func (c *cStream) next() (*cstruct.Input, error) {
	if code := c.getNext(); code != 0 {
		return nil, c.failed("get_next", code)
	}
	in := &c.in
	*in = cstruct.Input{}
	c.given(in)
	in.CountsNulls = c.opts.LikeArrowGo
	if in.Array.Release == 0 {
		return nil, io.EOF
	}
	if in.ID.Type != c.device {
		c.opts.Discard(in)
		err := fielderr.Invalid(fielderr.OpImport, in.Names.Name+".device_type", int32(in.ID.Type), fmt.Sprintf("%d, the device type of the stream", int32(c.device)))
		return nil, c.ofNext(err)
	}
	return in, nil
}

// ofNext adds get_next to the path of an error about the struct that it filled.
func (c *cStream) ofNext(err error) error {
	if err == nil {
		return nil
	}
	return fielderr.Within(c.name()+".get_next", err)
}

// failed returns the error for a code that a callback has just returned, with the text of
// get_last_error.
func (c *cStream) failed(callback string, code int) error {
	text := strings.ToValidUTF8(c.lastError(), "\ufffd")
	return &ProducerError{Callback: c.name() + "." + callback, Code: code, Message: text}
}

func (c *cStream) release() { c.releaseThen(func() {}) }

// releaseThen releases the stream, and calls done when the producer's callback has returned. The
// function of WithReleaser may call it later.
func (c *cStream) releaseThen(done func()) {
	c.opts.Release(func() {
		defer done()
		c.foreign.release()
		c.origin.Remove()
		importedStreams.Add(-1)
	})
}

// readSchema calls get_schema. After an error, it releases the stream.
func readSchema[T any](c *cStream, take func(*abi.ArrowSchema) (T, error)) (s T, err error) {
	var out abi.ArrowSchema
	if code := c.getSchema(&out); code != 0 {
		err = c.failed("get_schema", code)
	} else if s, err = take(&out); err != nil {
		err = fielderr.Within(c.name()+".get_schema", err)
	}
	if err != nil {
		c.release()
	}
	return s, err
}
