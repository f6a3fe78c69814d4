//go:build !asan

package gpu_test

const underASan = false
