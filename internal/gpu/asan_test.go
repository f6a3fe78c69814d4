//go:build asan

package gpu_test

// underASan says that code runs many times slower, and that more of it allocates.
const underASan = true
