package hostfile

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// WholePages returns the size of the pages that size bytes take.
func WholePages(size int64) int64 {
	page := int64(os.Getpagesize())
	return (size + page - 1) / page * page
}

// Map allocates size bytes for an empty file in memory, and maps them for reading and writing. ctx ends the allocation. The caller ends
// the mapping with Unmap; the file stays the caller's, and after an error has some of the bytes.
func Map(ctx context.Context, file int, size int64) ([]byte, error) {
	if err := checkAvailable(size); err != nil {
		return nil, err
	}
	if err := allocate(ctx, file, size); err != nil {
		return nil, err
	}
	m, err := unix.Mmap(file, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	return m, nil
}

// allocate allocates the pages of a file: without that, a write would kill the process where memory is short.
func allocate(ctx context.Context, file int, size int64) error {
	const piece = 16 << 20 // takes some milliseconds
	for at := int64(0); at < size; at += piece {
		if err := ctx.Err(); err != nil { // mutant: never
			return err
		}
		if err := unix.Fallocate(file, 0, at, min(piece, size-at)); err != nil {
			return fmt.Errorf("fallocate: %w", err)
		}
	}
	return nil
}

// Unmap ends a mapping.
func Unmap(m []byte) error { return unix.Munmap(m) }

// checkAvailable returns an error for more memory than the machine has available: the system would reclaim pages of all
// processes, and then kill one. It checks large sizes only, since the check takes as long as a small allocation.
func checkAvailable(size int64) error {
	const large = 64 << 20
	if size < large {
		return nil
	}
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil
	}
	available := int64(0)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if name == "MemAvailable" || name == "SwapFree" {
			n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			available += n << 10
		}
	}
	if available > 0 && size > available {
		return fmt.Errorf("%d bytes are available: %w", available, unix.ENOMEM)
	}
	return nil
}
