package triton

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/hostfile"
)

// The objects of shm_open are files of a folder. The names of those of this package go on with the process.
const (
	objectFolder = "/dev/shm/"
	objectPrefix = "arrowdevice-triton-"
)

// An object is a POSIX shared memory object that this process has made, mapped. Its file is open and locked as long as it has a
// name: the system unlocks the files of a process that ends.
type object struct {
	key    string // for shm_open
	file   int
	bytes  []byte
	locked device.Memory // by the driver; or nil
}

// newObject makes an object of size bytes, which are zero, and page-locks it for the GPU, unless that is nil. ctx ends the allocation,
// but not the page-locking.
func newObject(ctx context.Context, size int64, gpu device.HostRegistrar) (o *object, err error) {
	removeAbandoned()
	o = &object{}
	if err := o.create(); err != nil {
		return nil, err
	}
	if o.bytes, err = hostfile.Map(ctx, o.file, size); err != nil {
		o.remove()
		return nil, fmt.Errorf("%s: %w", objectFolder, err)
	}
	if gpu == nil {
		return o, nil
	}
	if o.locked, err = gpu.RegisterMemory(o.start(), size, false, o.unmap); err != nil {
		o.remove()
		o.unmap()
		return nil, fmt.Errorf("page-lock: %w", err)
	}
	return o, nil
}

// create makes the file, with a name that no other has, and locks it.
func (o *object) create() error {
	for {
		var random [8]byte
		_, _ = rand.Read(random[:]) // it never fails
		o.key = fmt.Sprintf("/%s%d-%s", objectPrefix, os.Getpid(), hex.EncodeToString(random[:]))
		file, err := unix.Open(o.path(), unix.O_CREAT|unix.O_EXCL|unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
		if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("open %s: %w", o.path(), err)
		}
		o.file = file
		named, err := o.lock()
		if named {
			return nil
		}
		o.remove()
		if err != nil {
			return fmt.Errorf("lock %s: %w", o.path(), err)
		}
	}
}

// lock locks the file, and reports whether it still has its name: until it was locked, another process may have taken it for
// abandoned.
func (o *object) lock() (named bool, err error) {
	err = unix.Flock(o.file, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	var info unix.Stat_t
	if err == nil {
		err = unix.Fstat(o.file, &info)
	}
	return err == nil && info.Nlink > 0, err
}

func (o *object) path() string { return objectFolder + strings.TrimPrefix(o.key, "/") }

func (o *object) start() device.Ptr {
	return device.Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(o.bytes))))
}

// end removes the name, and unmaps the memory: now, or once the driver has unlocked it.
func (o *object) end() {
	o.remove()
	if o.locked == nil {
		o.unmap()
		return
	}
	_ = o.locked.FreeAfter(nil) // the device retries what fails; lost memory stays mapped
}

func (o *object) remove() {
	_ = unix.Unlink(o.path())
	_ = unix.Close(o.file)
}

func wholePages(size int64) int64 { return hostfile.WholePages(size) }

func (o *object) unmap() { _ = hostfile.Unmap(o.bytes) }

// removeAbandoned removes, once in a process, the objects of this user whose processes have ended without doing so.
var removeAbandoned = sync.OnceFunc(func() {
	paths, _ := filepath.Glob(objectFolder + objectPrefix + "*")
	for _, path := range paths {
		removeUnlocked(path)
	}
})

// removeUnlocked removes a file of this user that no process has locked.
func removeUnlocked(path string) {
	file, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer unix.Close(file)
	var info unix.Stat_t
	if unix.Fstat(file, &info) == nil && int(info.Uid) == os.Geteuid() && unix.Flock(file, unix.LOCK_EX|unix.LOCK_NB) == nil {
		_ = unix.Unlink(path)
	}
}

// ownerOf returns the number of the process that has made an object, and reports whether it lives, by its lock. It does not of an object
// that is not of this package, or that this user cannot open.
func ownerOf(key string) (process string, lives bool) {
	name, made := strings.CutPrefix(key, "/"+objectPrefix)
	if !made || strings.Contains(name, "/") {
		return "", false
	}
	file, err := unix.Open(objectFolder+objectPrefix+name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", false
	}
	defer unix.Close(file) // which unlocks it
	process, _, _ = strings.Cut(name, "-")
	return process, errors.Is(unix.Flock(file, unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}
