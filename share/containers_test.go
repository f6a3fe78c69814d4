//go:build linux

package share

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/emulated"
	"github.com/arrowdevice/arrowdevice/internal/testing/otherprocess"
)

// isolated gives a process namespaces of its own, as a container has, in which it is the user of this number. It skips
// the test where the system does not permit that.
func isolated(t *testing.T, namespaces uintptr, user int) func(*exec.Cmd) {
	t.Helper()
	change := func(c *exec.Cmd) {
		c.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | namespaces,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: user, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: user, HostID: os.Getgid(), Size: 1}},
		}
	}
	self, err := os.Executable()
	require.NoError(t, err)
	probe := emulated.Command(self, "-test.run=^$")
	change(probe)
	if err := probe.Run(); err != nil {
		t.Skip("namespaces of a user's own are not permitted here: ", err)
	}
	return change
}

// An opener in other namespaces than the owner's opens host memory, as long as it is in the network namespace. Its user
// may have another number there.
func TestHostMemoryBetweenContainers(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	b := numbers(t, allocator(t))
	defer b.Release()
	const others = syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS
	for name, c := range map[string]struct {
		namespaces uintptr
		user       int
		want       string
	}{
		"PID, IPC, mount and UTS": {others, os.Getuid(), "opened"},
		"another number":          {others, 4711, "opened"},
		"network":                 {syscall.CLONE_NEWNET, os.Getuid(), "share: Open: " + ErrOtherNetwork.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			p := otherprocess.StartAs(t, isolated(t, c.namespaces, c.user), "TestOpener", "")
			s := issued(t, b)
			assert.Equal(t, c.want, opens(p, s.Ticket()))
			if c.want == "opened" {
				assert.Equal(t, numbersText, told(p, "read"))
				p.Kill() // the owner waits for its end, though it has another number there
			} else {
				require.NoError(t, s.Close())
			}
			requireReleased(t, s)
		})
	}
}

// Where the owner's own number is the one that stands for all users that its user namespace does not have, such a user is not
// taken for the owner's.
func TestUserThatANamespaceDoesNotHave(t *testing.T) {
	another := asAnotherUser(t)
	owner := otherprocess.StartAs(t, isolated(t, 0, 65534), "TestOwner", "")
	p := otherprocess.StartAs(t, another, "TestOpenAsAnotherUser", "")
	p.Write(owner.Read())
	assert.Equal(t, "refused", p.Read())
	p.End(0)
}

// CUDA IPC needs one PID namespace: the error of the driver says so. The ticket is not used up.
func TestMemoryOfAGPUBetweenContainers(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	another := isolated(t, syscall.CLONE_NEWPID, os.Getuid())
	s := shareAndRelease(t, numbersOnGPU(t, m.GPUs[0]))
	p := otherprocess.StartAs(t, another, "TestOpener", m.Path())
	answer := opens(p, s.Ticket())
	assert.Contains(t, answer, "cuIpcOpenMemHandle")
	assert.Contains(t, answer, "the owner is in another PID namespace, and CUDA IPC needs one for both")
	same := opener(t, m.Path())
	require.Equal(t, "opened", opens(same, s.Ticket()))
	requireEnd(t, same, s)
	require.NoError(t, m.GPUs[0].Flush(background))
}
