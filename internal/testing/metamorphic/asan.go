//go:build asan

package metamorphic

// underASan leaves out panics in callbacks from C: Go's unwinding does not tell AddressSanitizer of the C frames that it leaves.
const underASan = true
