//go:build asan

package cdata_test

// underASan reports that a leak of C memory is an error of the whole run.
const underASan = true
