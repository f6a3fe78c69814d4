package items_test

import (
	"io"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/items"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

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

			idle(t)
			asked, answer := make(chan struct{}), make(chan struct{})
			a := items.Ahead[*number]{Ask: func() (*number, error) {
				close(asked)
				<-answer
				return new(fixture).item(0), nil
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
			idle(t)
			assert.Len(t, seen, row.panics)
		})
	}
}

// An item that was dropped is missed: the stream neither goes on behind it, nor ends as if it had been
// read. What the source said without an item stays.
func TestDiscardedItemIsMissed(t *testing.T) {
	for _, row := range []struct {
		name   string
		item   *number
		err    error
		during bool // the read is under way when its item is discarded
		want   error
	}{
		{"an item", new(fixture).item(0), nil, false, items.ErrDiscarded},
		{"an item of a read under way", new(fixture).item(0), nil, true, items.ErrDiscarded},
		{"the end", nil, io.EOF, false, io.EOF},
		{"the end, of a read under way", nil, io.EOF, true, io.EOF},
	} {
		t.Run(row.name, func(t *testing.T) {
			idle(t)
			asks, answer := 0, make(chan struct{})
			a := items.Ahead[*number]{Ask: func() (*number, error) {
				asks++
				<-answer
				return row.item, row.err
			}}
			a.Start()
			if !row.during {
				close(answer)
				idle(t)
			}
			a.Discard()
			if row.during {
				close(answer)
			}
			item, err := a.Next()
			assert.Nil(t, item)
			assert.Equal(t, row.want, err)
			assert.Equal(t, 1, asks)
		})
	}
}

// The goroutine that reads goes on where its user waits for the item: the source does not stand still
// until the user has been woken. It goes no further than that.
func TestReadGoesOnWhereItIsAwaited(t *testing.T) {
	idle(t)
	asks, answer := make(chan int), make(chan struct{})
	count := 0
	a := items.Ahead[*number]{Ask: func() (*number, error) {
		count++
		if count == 4 {
			return nil, io.EOF
		}
		asks <- count
		<-answer
		return new(fixture).item(0), nil
	}}
	a.Start()
	assert.Equal(t, 1, <-asks)
	taken := make(chan *number)
	go func() {
		item, err := a.Next() // and no Start
		assert.NoError(t, err)
		taken <- item
	}()
	within.Eventually(t, "the wait", a.Awaited)
	answer <- struct{}{}
	assert.Equal(t, 2, <-asks)
	assert.NotNil(t, <-taken)
	answer <- struct{}{} // nothing awaits the second item
	idle(t)
	a.Start() // of an item that is read already
	assert.Zero(t, items.Goroutines.Load())
	item, err := a.Next()
	assert.NotNil(t, item)
	assert.NoError(t, err)
	a.Start()
	assert.Equal(t, 3, <-asks)
	answer <- struct{}{}
	idle(t)
	a.Close(func() {})
	_, err = a.Next()
	assert.Equal(t, items.ErrDiscarded, err)
}

// An item that is awaited when it is discarded ends the reading: no other is read.
func TestDiscardEndsTheReading(t *testing.T) {
	idle(t)
	asks, answer := 0, make(chan struct{})
	a := items.Ahead[*number]{Ask: func() (*number, error) {
		asks++
		<-answer
		return new(fixture).item(0), nil
	}}
	a.Start()
	ended := make(chan error)
	go func() {
		_, err := a.Next()
		ended <- err
	}()
	within.Eventually(t, "the wait", a.Awaited)
	a.Discard()
	close(answer)
	assert.Equal(t, items.ErrDiscarded, <-ended)
	idle(t)
	assert.Equal(t, 1, asks)
}

// The item of a read that was awaited is the user's: what is discarded is the one after it.
func TestDiscardOfTheItemBehindOneThatIsTaken(t *testing.T) {
	answer, asked := make(chan struct{}), make(chan struct{}, 3)
	a := items.Ahead[*number]{Ask: func() (*number, error) {
		asked <- struct{}{}
		<-answer
		return new(fixture).item(0), nil
	}}
	a.Start()
	<-asked
	taken := make(chan *number)
	go func() {
		item, err := a.Next()
		assert.NoError(t, err)
		taken <- item
	}()
	within.Eventually(t, "the wait", a.Awaited)
	answer <- struct{}{}
	<-asked
	a.Discard() // while the second one is read
	assert.NotNil(t, <-taken)
	close(answer)
	_, err := a.Next()
	assert.Equal(t, items.ErrDiscarded, err)
}
