//go:build !windows

package main

// #cgo CFLAGS: -I${SRCDIR}/../../cdevice/include
import "C"

// This is the folder of arrow_device.h in this repository. A module of its own sets CGO_CFLAGS instead:
// docs/cookbook.md has the commands.
