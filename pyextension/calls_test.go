//go:build cgo && unix

package pyextension

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/pyextension/internal/capi"
)

// registerCalls registers functions, and returns requests for them by the names of what is measured.
func registerCalls(t testing.TB) map[string][]byte {
	Func("empty", func() {})
	Func("add", func(a, b int64) int64 { return a + b })
	Func("rows", (*cdevice.RecordBatch).NumRows)
	o := (&object{kind: kindBatch, batch: newBatch(t, 1, 2, 3)}).issue()
	t.Cleanup(func() {
		release(o.handle)
		functions.set(nil)
	})
	return map[string][]byte{
		"empty": request(t, "empty"), "add": request(t, "add", int64(1), int64(2)), "rows": request(t, "rows", own1(uint64(o.handle))),
	}
}

// The Go half of calls from Python.
func BenchmarkCall(b *testing.B) {
	for name, req := range registerCalls(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var r dropped
			for b.Loop() {
				server{}.Call(req, capi.Caller{Main: true}, 0, &r)
			}
		})
	}
}

type dropped struct{}

func (*dropped) Put([]byte) {}

// A stream that outlives its call holds the scope: its release must not end the context of a call that came later.
func TestMemoryOfACallThatIsHeld(t *testing.T) {
	nothingIsLeft(t)
	ended := make(chan struct{})
	register(t, "waits", func(ctx context.Context) {
		<-ctx.Done()
		close(ended)
	})
	o := (&object{kind: kindBatch, batch: newBatch(t, 1)}).issue()
	defer release(o.handle)
	var streams []uintptr
	for range 10 { // one of them at least is made with the memory that the pool gives next
		_, data := callInMain(request(t, ".export", own1(uint64(o.handle)), "stream"), 0)
		require.Equal(t, []byte{wireResult, wireStruct, plainStreamStruct.number}, data[:3])
		streams = append(streams, uintptr(binary.LittleEndian.Uint64(data[3:])))
	}
	number, _ := callInMain(request(t, "waits"), 0)
	for _, at := range streams {
		plainStreamStruct.release(at)
		capi.Free(at)
	}
	select {
	case <-ended:
		t.Error("the release of a stream ended another call")
	case <-time.After(50 * time.Millisecond): // the end comes at once, if it comes
	}
	server{}.Cancel(number)
	<-ended
}
