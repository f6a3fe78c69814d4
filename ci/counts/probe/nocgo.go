//go:build !cgo

package probe

// Without cgo, the build fails in package abi with an error that names the remedy.
import _ "github.com/arrowdevice/arrowdevice/internal/abi"
