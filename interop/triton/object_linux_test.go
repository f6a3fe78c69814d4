package triton_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/internal/testing/otherprocess"
	"github.com/arrowdevice/arrowdevice/interop/triton"
)

// objects returns the objects of this process that have a name.
func objects(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(fmt.Sprintf("/dev/shm/arrowdevice-triton-%d-*", os.Getpid()))
	require.NoError(t, err)
	return paths
}

// An object is for its user alone, has a name of its own, and goes with the region.
func TestObject(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	first, second := systemRegionOf(t, "r", onHost(t, numbers, numbersRows)), systemRegionOf(t, "r", onHost(t, numbers, numbersRows))
	assert.NotEqual(t, first.Key(), second.Key())
	assert.Nil(t, first.RawHandle())
	info, err := os.Stat("/dev/shm" + first.Key())
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
	assert.Equal(t, first.ByteSize(), info.Size())
	first.Close()
	first.Close()
	assert.Equal(t, []string{"/dev/shm" + second.Key()}, objects(t))
}

// The folder may have less room than a region takes, which is an error and not a signal at the first write.
func TestObjectWithoutRoom(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	var room unix.Statfs_t
	require.NoError(t, unix.Statfs("/dev/shm", &room))
	more := (int64(room.Blocks) + 1) * room.Bsize
	_, err := triton.NewSystemRegion(background, "r", onHost(t, numbers, numbersRows), triton.WithCapacity(more))
	assert.ErrorContains(t, err, fmt.Sprintf(`triton: region: region "r" = %d bytes: /dev/shm/: `, more))
	assert.Empty(t, objects(t))
}

// A process that is killed leaves its objects, and the next one removes them: not those of processes that run, nor files that only
// have such a name, of other users or kinds.
func TestAbandonedObjects(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	own := systemRegionOf(t, "r", onHost(t, numbers, numbersRows))
	owner := func() (p *otherprocess.Peer, path string) {
		p = otherprocess.Start(t, "TestOwner", "none")
		return p, "/dev/shm" + p.Read()
	}
	killed, abandoned := owner()
	assert.FileExists(t, abandoned)
	killed.Kill()
	assert.FileExists(t, abandoned)
	folder := fmt.Sprintf("/dev/shm/arrowdevice-triton-%d-folder", os.Getpid())
	require.NoError(t, os.Mkdir(folder, 0o700))
	defer os.Remove(folder)
	foreign := fmt.Sprintf("/dev/shm/arrowdevice-triton-%d-foreign", os.Getpid())
	if os.Geteuid() == 0 {
		require.NoError(t, os.WriteFile(foreign, nil, 0o600))
		defer os.Remove(foreign)
		require.NoError(t, os.Chown(foreign, 65534, 65534))
	}
	next, theirs := owner()
	if os.Geteuid() == 0 {
		assert.FileExists(t, foreign)
	}
	assert.NoFileExists(t, abandoned)
	assert.FileExists(t, "/dev/shm"+own.Key())
	assert.DirExists(t, folder)
	assert.True(t, strings.HasPrefix(filepath.Base(theirs), fmt.Sprintf("arrowdevice-triton-%d-", next.Process().Pid)))
	next.Write("end")
	next.End(0)
	assert.NoFileExists(t, theirs)
}

// TestOwner is a process that has a region, whose key it says, until it reads a line.
func TestOwner(t *testing.T) {
	caller := otherprocess.Caller(t)
	r, err := triton.NewSystemRegion(background, "r", onHost(t, numbers, numbersRows))
	require.NoError(t, err)
	caller.Write(r.Key())
	caller.Read()
	r.Close()
}

// An object that another process takes for abandoned, before it is locked, gets another name.
func TestObjectsAreLocked(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	batch := onHost(t, numbers, numbersRows)
	stop := make(chan bool)
	var removers sync.WaitGroup
	for i := range 4 {
		removers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					removeUnlocked(time.Duration(i%2) * 100 * time.Microsecond)
				}
			}
		})
	}
	for range 2000 {
		r, err := triton.NewSystemRegion(background, "r", batch)
		require.NoError(t, err)
		_, err = os.Stat("/dev/shm" + r.Key())
		assert.NoError(t, err)
		r.Close()
	}
	close(stop)
	removers.Wait()
}

// removeUnlocked removes the objects of this process that are not locked, as another process does, which takes a time for it.
func removeUnlocked(lasting time.Duration) {
	paths, _ := filepath.Glob(fmt.Sprintf("/dev/shm/arrowdevice-triton-%d-*", os.Getpid()))
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			continue
		}
		if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			time.Sleep(lasting)
			_ = os.Remove(path)
		}
		file.Close()
	}
}
