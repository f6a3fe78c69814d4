package share

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/arrowdevice/arrowdevice/internal/hostfile"
)

func wholePages(size int) int64 { return hostfile.WholePages(int64(size)) }

// seals fix the size of the file. Newer Linux, since 5.1, also seals it against later writable mappings.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW

// newBlock creates a file of this size, and maps it.
func newBlock(size int) (b *block, err error) {
	file, err := unix.MemfdCreate("arrowdevice", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	defer func() {
		if err != nil {
			_ = unix.Close(file)
		}
	}()
	m, err := hostfile.Map(context.Background(), file, int64(size))
	if err != nil {
		return nil, err
	}
	// mutant: _, err = unix.FcntlInt(uintptr(file), unix.F_ADD_SEALS, seals|unix.F_SEAL_SEAL)
	_, err = unix.FcntlInt(uintptr(file), unix.F_ADD_SEALS, seals|unix.F_SEAL_FUTURE_WRITE|unix.F_SEAL_SEAL)
	if errors.Is(err, unix.EINVAL) {
		_, err = unix.FcntlInt(uintptr(file), unix.F_ADD_SEALS, seals|unix.F_SEAL_SEAL)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("seal: %w", err), hostfile.Unmap(m))
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
