//go:build !asan

package metamorphic

// underASan leaves out panics in callbacks from C.
const underASan = false
