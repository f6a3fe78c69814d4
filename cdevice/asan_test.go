//go:build asan

package cdevice_test

// underASan says that memory which C has forgotten is an error of the whole run.
const underASan = true
