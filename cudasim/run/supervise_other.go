//go:build !linux

package main

import "errors"

func supervise(string, []string, []string) (status int, err error) {
	return 0, errors.New("the simulated driver is for Linux")
}
