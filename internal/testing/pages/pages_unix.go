//go:build unix

package pages

import (
	"os"
	"syscall"
)

var protections = [...]int{None: syscall.PROT_NONE, Read: syscall.PROT_READ, ReadWrite: syscall.PROT_READ | syscall.PROT_WRITE}

func mapped(size int, access Access) ([]byte, func() error, error) {
	b, err := syscall.Mmap(-1, 0, size, protections[access], syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	return b, func() error { return syscall.Munmap(b) }, err
}

func mappedFile(f *os.File, size int) ([]byte, func() error, error) {
	b, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ, syscall.MAP_SHARED)
	return b, func() error { return syscall.Munmap(b) }, err
}
