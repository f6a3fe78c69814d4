//go:build !linux

package triton

import (
	"context"
	"fmt"
	"runtime"

	"github.com/arrowdevice/arrowdevice/device"
)

// An object is a POSIX shared memory object, which only Linux has as a file.
type object struct {
	key   string
	bytes []byte
}

func newObject(context.Context, int64, device.HostRegistrar) (*object, error) {
	return nil, fmt.Errorf("on %s: %w", runtime.GOOS, device.ErrNotSupported)
}

func (o *object) start() device.Ptr { return 0 }
func (o *object) end()              {}

func wholePages(size int64) int64 { return size }

func ownerOf(string) (process string, lives bool) { return "", false }
