//go:build !linux || !cgo

package cudasim

import "errors"

type loaded struct{}

func open(string) (loaded, error) {
	return loaded{}, errors.New("the simulated driver is loaded on Linux with cgo only")
}

func (loaded) symbol(string) uintptr { return 0 }

// There is no Sim to call these with: open fails.

func (*Sim) call(string, ...uintptr) uint64 { return 0 }

func stringAt(uintptr) string { return "" }
