package bridge

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/handle"
)

type owner struct{ release func() }

func (o owner) Release() { o.release() }

// oneArray exports a single struct whose release gives back the handle of v.
func oneArray(v handle.Releaser) *abi.ArrowArray {
	block := NewBlock(BlockSize)
	block.Live, block.Handle = 1, handle.New(v)
	return &abi.ArrowArray{Release: ReleaseArray, PrivateData: uintptr(unsafe.Pointer(block))}
}

func TestReleaseGivesTheHandleBackOnce(t *testing.T) {
	blocks, released := Blocks(), 0
	a := oneArray(owner{func() { released++ }})
	assert.Equal(t, blocks+1, Blocks())
	CallArrayRelease(a)
	assert.Equal(t, 1, released)
	assert.Zero(t, a.Release)
	assert.Equal(t, blocks, Blocks())
}

// A struct may be a part of a Go object that holds Go pointers.
func TestReleaseBesideGoPointers(t *testing.T) {
	released := 0
	var beside struct {
		array abi.ArrowArray
		other *int
	}
	beside.other = new(int)
	beside.array = *oneArray(owner{func() { released++ }})
	CallArrayRelease(&beside.array)
	assert.Equal(t, 1, released)
}

func TestPanicDoesNotCrossIntoC(t *testing.T) {
	var seen any
	defer func(before func(any, []byte)) { OnPanic = before }(OnPanic)
	OnPanic = func(v any, stack []byte) {
		seen = v
		assert.Contains(t, string(stack), "TestPanicDoesNotCrossIntoC")
	}
	CallArrayRelease(oneArray(owner{func() { panic("in a callback") }}))
	assert.Equal(t, "in a callback", seen)
}

func TestZerosAreZeroAndAligned(t *testing.T) {
	assert.Zero(t, Zeros%64)
	assert.Equal(t, make([]byte, 64), abi.Slice[byte](Zeros, 64))
}

// Two major versions of this library may be linked into one program: every C
// symbol that it defines carries the prefix with the version.
func TestSymbolsCarryThePrefix(t *testing.T) {
	archive, err := exec.Command("go", "list", "-export", "-f", "{{.Export}}", ".").Output()
	require.NoError(t, err)
	dir := t.TempDir()
	extract := exec.Command("ar", "x", strings.TrimSpace(string(archive)))
	extract.Dir = dir
	out, err := extract.CombinedOutput()
	require.NoError(t, err, "%s", out)
	objects, err := filepath.Glob(filepath.Join(dir, "_x*.o"))
	require.NoError(t, err)
	require.NotEmpty(t, objects, "the C objects of the package")
	ours := 0
	for _, object := range objects {
		out, err := exec.Command("nm", "--defined-only", "--extern-only", "--format=posix", object).Output()
		require.NoError(t, err)
		for line := range strings.Lines(string(out)) {
			name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			if runtime.GOOS == "darwin" {
				name = strings.TrimPrefix(name, "_") // Mach-O puts one before every C name
			}
			switch {
			case strings.HasPrefix(name, "cdevice_v0_"):
				ours++
			case strings.HasPrefix(name, "_cgo"): // cgo's own, with a hash of the package
			case name == "":
			default:
				t.Errorf("symbol %s of %s lacks the prefix cdevice_v0_", name, filepath.Base(object))
			}
		}
	}
	assert.GreaterOrEqual(t, ours, 8, "the test must see our symbols")
}
