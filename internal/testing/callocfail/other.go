//go:build !cgo || !linux

package callocfail
