//go:build !cgo

package pyextension

import _ "github.com/arrowdevice/arrowdevice/internal/abi" // fails to build with the reason
