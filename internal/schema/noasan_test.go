//go:build !asan

package schema

const underASan = false
