package bridge

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/handle"
)

// nested is a producer that answers every call of it with inside.
type nested struct{ inside func() }

func (n nested) Request(int64) { n.inside() }
func (n nested) Cancel()       { n.inside() }
func (n nested) Release()      {}

func TestCallingKnowsTheCallsThatThisThreadIsIn(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const first, second = handle.Word(1), handle.Word(2)
	var inner, outer *abi.ArrowAsyncProducer
	calls := 0
	inner = NewProducer(nested{func() {
		calls++
		assert.True(t, Calling(first), "the outer one too")
		assert.True(t, Calling(second))
		elsewhere := make(chan bool)
		go func() { elsewhere <- Calling(first) || Calling(second) }() // may be on any thread but this
		assert.False(t, <-elsewhere)
	}}, 1, nil)
	outer = NewProducer(nested{func() {
		calls++
		assert.True(t, Calling(first))
		assert.False(t, Calling(second))
		CallCancel(inner, second)
		assert.False(t, Calling(second), "it is over")
		assert.True(t, Calling(first))
	}}, 1, nil)
	CallRequest(outer, 1, first)
	assert.Equal(t, 2, calls)
	assert.False(t, Calling(first))
	EndProducer(inner)
	EndProducer(outer)
}

func TestNoMemoryForAProducer(t *testing.T) {
	before := handle.Live()
	defer LimitBlocks(47)()
	assert.Nil(t, NewProducer(nested{}, 1, make([]byte, 8)))
	assert.Equal(t, before, handle.Live())
}
