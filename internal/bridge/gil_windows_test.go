package bridge

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/testing/fakepython"
)

// On other systems the tests in Python prove it.
func TestGIL(t *testing.T) {
	held := -1
	WithGIL(func() { held = fakepython.Held() })
	assert.Equal(t, 1, held)
	assert.Zero(t, fakepython.Held())

	fakepython.SetFinalizing(true)
	defer fakepython.SetFinalizing(false)
	WithGIL(func() { t.Error("it is called while Python is finalizing") })
	assert.Zero(t, fakepython.Held())
}
