//go:build !cgo

package cpeer

// Without cgo, the build fails in package abi and says what to do.
import _ "github.com/arrowdevice/arrowdevice/internal/abi"
