//go:build !linux

package cdevice_test

// pinToOneCore does nothing: GOMAXPROCS has to do.
func pinToOneCore() error { return nil }
