//go:build !linux

package share

import (
	"context"
	"fmt"
	"runtime"

	"github.com/arrowdevice/arrowdevice/device"
)

// CUDA IPC and memfd exist on Linux only.

const (
	maxFiles = 0
	released = 'r'
	failed   = 'f'
)

type status byte

const (
	accepted status = iota + 1
	exhausted
	mismatched
)

// errSystem says that the package does not work on this system.
var errSystem = fmt.Errorf("on %s: %w", runtime.GOOS, device.ErrNotSupported)

var thisProcess id

func bootID() (string, error) { return "", errSystem }

func namespace(string) uint64 { return 0 }

type ownerList struct{}

var owned ownerList

func (*ownerList) add(*Shared, func(string) error) error { return errSystem }
func (*ownerList) remove(*Shared)                        {}

func wholePages(size int) int64 { return int64(size) }

func newBlock(int) (*block, error) { return nil, errSystem }
func (b *block) end()              {}

type mapping []byte

func mapFile(int, int64) (mapping, error) { return nil, errSystem }
func (m mapping) address() uintptr        { return 0 }
func (m mapping) end()                    {}

type connection struct{ files []int }

func connect(context.Context, Ticket, *content) (*connection, error) { return nil, errSystem }
func (c *connection) closeFiles()                                    {}
func (c *connection) end(byte)                                       {}
func (c *connection) watch(func())                                   {}
