//go:build !linux || !cgo

package cudasimtest

import (
	"testing"

	"github.com/arrowdevice/arrowdevice/cudasim"
)

// There is no machine to settle: cudasim.Load skips or fails the test.
func settle(testing.TB, *cudasim.Sim) {}
