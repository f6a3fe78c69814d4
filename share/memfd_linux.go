package share

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

func wholePages(size int) int64 {
	page := int64(os.Getpagesize())
	return (int64(size) + page - 1) / page * page
}

// checkAvailable returns an error for more memory than the machine has available: the system would reclaim pages of all
// processes, and then kill one. It checks large sizes only, since the check takes as long as a small allocation.
func checkAvailable(size int) error {
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
	if available > 0 && int64(size) > available {
		return fmt.Errorf("%d bytes are available: %w", available, unix.ENOMEM)
	}
	return nil
}

// seals fix the size of the file. Newer Linux, since 5.1, also seals it against later writable mappings.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW

// newBlock creates a file of this size, and maps it.
func newBlock(size int) (b *block, err error) {
	if err := checkAvailable(size); err != nil {
		return nil, err
	}
	file, err := unix.MemfdCreate("arrowdevice", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	defer func() {
		if err != nil {
			_ = unix.Close(file)
		}
	}()
	// This allocates the pages: without it, a write would kill the process where memory is short.
	if err := unix.Fallocate(file, 0, 0, int64(size)); err != nil {
		return nil, fmt.Errorf("fallocate: %w", err)
	}
	m, err := unix.Mmap(file, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	// mutant: _, err = unix.FcntlInt(uintptr(file), unix.F_ADD_SEALS, seals|unix.F_SEAL_SEAL)
	_, err = unix.FcntlInt(uintptr(file), unix.F_ADD_SEALS, seals|unix.F_SEAL_FUTURE_WRITE|unix.F_SEAL_SEAL)
	if errors.Is(err, unix.EINVAL) {
		_, err = unix.FcntlInt(uintptr(file), unix.F_ADD_SEALS, seals|unix.F_SEAL_SEAL)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("seal: %w", err), unix.Munmap(m))
	}
	return &block{file: file, start: uintptr(unsafe.Pointer(unsafe.SliceData(m))), size: uintptr(size)}, nil
}

// end unmaps the block and closes its file.
func (b *block) end() {
	_ = unix.MunmapPtr(*(*unsafe.Pointer)(unsafe.Pointer(&b.start)), b.size)
	_ = unix.Close(b.file)
}

// mapping is host memory of another process.
type mapping []byte

// mapFile maps a file that the owner has sent, read-only. The owner filled it before it sent the file, and the system orders a message
// after what its sender wrote; so the opener sees all of it. It first checks that the file has the size in the ticket and cannot
// shrink: a read beyond its end would kill this process.
func mapFile(file int, size int64) (mapping, error) {
	has, err := unix.FcntlInt(uintptr(file), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("seals: %w", err)
	}
	if has&seals != seals { // mutant: never
		return nil, fmt.Errorf("the file has the seals %#x, want %#x: its size can change", has, seals)
	}
	var info unix.Stat_t
	if err := unix.Fstat(file, &info); err != nil {
		return nil, fmt.Errorf("fstat: %w", err)
	}
	if info.Size < size { // mutant: never
		return nil, fmt.Errorf("the file has %d bytes, want %d", info.Size, size)
	}
	m, err := unix.Mmap(file, 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	return m, nil
}

func (m mapping) address() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(m))) }

func (m mapping) end() { _ = unix.Munmap(m) }
