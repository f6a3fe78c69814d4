//go:build asan

package cdevice_test

import ()

// underASan reports that a leak of C memory is an error of the whole run.
const underASan = true
