//go:build cgo && !unix

package pyextension_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/pyextension"
)

func TestOtherSystems(t *testing.T) {
	assert.NoError(t, pyextension.Check(), "nothing is registered")
	pyextension.Func("twice", func(n int) int { return 2 * n },
		pyextension.WithParams("n"), pyextension.WithDefault("n", 1), pyextension.WithDoc("Twice n."))
	assert.ErrorIs(t, pyextension.Check(), device.ErrNotSupported)
	assert.EqualError(t, pyextension.Check(), `pyextension.Func "twice": on `+runtime.GOOS+": "+device.ErrNotSupported.Error())
}
