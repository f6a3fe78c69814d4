package bridge

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/handle"
)

// panicky is a stream that breaks its promise not to panic.
type panicky struct{ released *int }

func (panicky) GetSchema(*abi.ArrowSchema) int { panic("in get_schema") }
func (panicky) GetNext(uintptr) int            { panic("in get_next") }
func (panicky) GetLastError() uintptr          { panic("in get_last_error") }
func (p panicky) Release()                     { *p.released++ }

func TestPanicInAStreamCallbackIsEIO(t *testing.T) {
	var seen []any
	defer func(before func(any, []byte)) { OnPanic = before }(OnPanic)
	OnPanic = func(v any, _ []byte) { seen = append(seen, v) }
	live, released := handle.Live(), 0
	var s abi.ArrowDeviceArrayStream
	ExportStream(panicky{&released}, 1, &s)
	assert.EqualValues(t, syscall.EIO, CallGetSchema(&s, new(abi.ArrowSchema)))
	assert.EqualValues(t, syscall.EIO, CallGetNext(&s, new(abi.ArrowDeviceArray)))
	assert.Empty(t, CallGetLastError(&s))
	assert.Equal(t, []any{"in get_schema", "in get_next", "in get_last_error"}, seen)
	stale := s
	CallStreamRelease(&s)
	assert.Zero(t, s.Release)
	assert.Equal(t, 1, released)
	assert.Equal(t, live, handle.Live())
	assert.EqualValues(t, syscall.EINVAL, CallGetNext(&stale, new(abi.ArrowDeviceArray)), "a handle that names nothing")
	CallStreamRelease(&stale)
	assert.Equal(t, 1, released)
}
