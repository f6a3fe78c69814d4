//go:build !asan

package cdevice_test

import ()

const underASan = false
