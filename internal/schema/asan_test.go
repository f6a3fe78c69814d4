//go:build asan

package schema

// underASan says that code runs many times slower, and that more of it allocates.
const underASan = true
