//go:build !asan

package bridge

// asan reports whether the program is built with AddressSanitizer.
const asan = false
