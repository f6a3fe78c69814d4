package bridge

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/errno"
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
	assert.EqualValues(t, errno.Code(syscall.EIO), CallGetSchema(&s, new(abi.ArrowSchema)))
	assert.EqualValues(t, errno.Code(syscall.EIO), CallGetNext(&s, new(abi.ArrowDeviceArray)))
	assert.Empty(t, CallGetLastError(&s))
	assert.Equal(t, []any{"in get_schema", "in get_next", "in get_last_error"}, seen)
	stale := s
	CallStreamRelease(&s)
	assert.Zero(t, s.Release)
	assert.Equal(t, 1, released)
	assert.Equal(t, live, handle.Live())
	assert.EqualValues(t, errno.Code(syscall.EINVAL), CallGetNext(&stale, new(abi.ArrowDeviceArray)), "a handle that names nothing")
	CallStreamRelease(&stale)
	assert.Equal(t, 1, released)
}

// numbered is a stream whose arrays are their number long.
type numbered struct {
	panicky
	given *int64
	code  *int // of GetNext
}

func (n numbered) GetNext(out uintptr) int {
	*n.given++
	abi.At[abi.ArrowArray](out).Length = *n.given // the first member of both kinds of structs
	return *n.code
}

// get_next of both kinds of streams; after a failure the struct is a released one, since C may look at it.
func TestGetNext(t *testing.T) {
	var given int64
	var code int
	var s abi.ArrowDeviceArrayStream
	var plain abi.ArrowArrayStream
	ExportStream(numbered{panicky{new(int)}, &given, &code}, 1, &s)
	ExportPlainStream(numbered{panicky{new(int)}, &given, &code}, &plain)
	for _, code = range []int{0, 5, 0} {
		var out abi.ArrowDeviceArray
		var plainOut abi.ArrowArray
		before := given
		assert.Equal(t, code, CallGetNext(&s, &out))
		assert.Equal(t, code, CallPlainGetNext(&plain, &plainOut))
		want := []int64{before + 1, before + 2}
		if code != 0 {
			want = []int64{0, 0}
		}
		assert.Equal(t, want, []int64{out.Array.Length, plainOut.Length})
	}
	CallStreamRelease(&s)
	CallPlainStreamRelease(&plain)
}
