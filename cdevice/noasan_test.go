//go:build !asan

package cdevice_test

const underASan = false
