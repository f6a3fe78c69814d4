package pages

import (
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

var protections = [...]uint32{None: windows.PAGE_NOACCESS, Read: windows.PAGE_READONLY, ReadWrite: windows.PAGE_READWRITE}

func mapped(size int, access Access) ([]byte, func() error, error) {
	p, err := windows.VirtualAlloc(0, uintptr(size), windows.MEM_RESERVE|windows.MEM_COMMIT, protections[access])
	if err != nil {
		return nil, nil, err
	}
	return at(p, size), func() error { return windows.VirtualFree(p, 0, windows.MEM_RELEASE) }, nil
}

func mappedFile(f *os.File, size int) ([]byte, func() error, error) {
	mapping, err := windows.CreateFileMapping(windows.Handle(f.Fd()), nil, windows.PAGE_READONLY, 0, 0, nil)
	if err != nil {
		return nil, nil, err
	}
	defer windows.CloseHandle(mapping)
	p, err := windows.MapViewOfFile(mapping, windows.FILE_MAP_READ, 0, 0, uintptr(size))
	if err != nil {
		return nil, nil, err
	}
	return at(p, size), func() error { return windows.UnmapViewOfFile(p) }, nil
}

// at is memory of the system at an address, which vet does not take for one of Go's.
func at(p uintptr, size int) []byte { return unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), size) }
