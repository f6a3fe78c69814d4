//go:build asan

package cstruct

// underASan reports that a leak of C memory is an error of the whole run.
const underASan = true
