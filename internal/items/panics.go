package items

import (
	"runtime/debug"

	"github.com/arrowdevice/arrowdevice/internal/bridge"
)

// Quietly calls f, whose errors no caller can get. A panic is reported to bridge.OnPanic, and not
// passed on.
func Quietly(f func()) {
	defer tellPanic()
	f()
}

// tellPanic recovers a panic that no caller can get, and reports it to bridge.OnPanic.
func tellPanic() {
	if v := recover(); v != nil {
		bridge.OnPanic(v, debug.Stack())
	}
}
