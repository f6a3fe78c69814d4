//go:build !cgo

package pyextension

import _ "github.com/arrowdevice/arrowdevice/internal/abi" // says what is missing
