package argument_test

import (
	"context"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/argument"
)

func TestNilNamesTheArgument(t *testing.T) {
	err := argument.Nil("flight: DoGet", "client", "a client")
	assert.EqualError(t, err, "flight: DoGet: client = nil, want a client: invalid")
	assert.ErrorIs(t, err, arrow.ErrInvalid)
}

func TestContext(t *testing.T) {
	assert.NoError(t, argument.Context("flight: DoGet", context.Background()))
	assert.ErrorContains(t, argument.Context("flight: DoGet", nil), "ctx = nil") //nolint:staticcheck // the case
}

func TestIsNil(t *testing.T) {
	var pointer *int
	var number int
	for _, c := range []struct {
		v    any
		want bool
	}{{nil, true}, {pointer, true}, {map[int]int(nil), true}, {[]int(nil), true}, {(func())(nil), true},
		{(chan int)(nil), true}, {&number, false}, {0, false}, {[]int{}, false}} {
		assert.Equal(t, c.want, argument.IsNil(c.v), "%T", c.v)
	}
}

func TestApply(t *testing.T) {
	increment := func(n *int) { *n++ }
	var n int
	assert.NoError(t, argument.Apply("flight: DoGet", &n, []func(*int){increment, increment}))
	assert.Equal(t, 2, n)
	assert.EqualError(t, argument.Apply("flight: DoGet", &n, []func(*int){increment, nil}), "flight: DoGet: opts[1] = nil, want an option: invalid")
}
