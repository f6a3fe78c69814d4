package items_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/items"
)

// counted is an item that only exists.
type counted struct{}

func (*counted) Retain()  {}
func (*counted) Release() {}

// What a close does after a read that is under way runs on the goroutine of the read: a panic there
// is reported, and ends nothing else.
func TestCloseDuringAReadAhead(t *testing.T) {
	for _, row := range []struct {
		name   string
		then   func()
		panics int
	}{
		{"panics", func() { panic("in stop") }, 1},
		{"exits", runtime.Goexit, 0},
		{"returns", func() {}, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			seen := make(chan any, 1)
			defer func(before func(any, []byte)) { bridge.OnPanic = before }(bridge.OnPanic)
			bridge.OnPanic = func(v any, _ []byte) { seen <- v }

			before := items.Goroutines.Load()
			asked, answer := make(chan struct{}), make(chan struct{})
			a := items.Ahead[*counted]{Ask: func() (*counted, error) {
				close(asked)
				<-answer
				return new(counted), nil
			}}
			a.Start()
			<-asked
			called := make(chan struct{})
			a.Close(func() { close(called); row.then() })
			select {
			case <-called:
				t.Error("the read is under way")
			default:
			}
			close(answer)
			<-called
			assert.Eventually(t, func() bool { return items.Goroutines.Load() == before }, 5*time.Second, time.Millisecond)
			assert.Len(t, seen, row.panics)
		})
	}
}
