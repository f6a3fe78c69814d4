//go:build !asan

package cstruct

const underASan = false
