package hostcopy

import (
	"bytes"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/pages"
)

// resident returns how many pages of the memory the system has provided.
func resident(t *testing.T, b []byte) (count int) {
	t.Helper()
	vector := make([]byte, len(b)/int(pageSize))
	_, _, err := syscall.Syscall(syscall.SYS_MINCORE, uintptr(address(b)), uintptr(len(b)), uintptr(unsafe.Pointer(&vector[0])))
	require.Zero(t, err)
	for _, page := range vector {
		count += int(page & 1)
	}
	return count
}

// Only a copy to fresh memory asks for the pages of a piece, before it writes to the first of them; here the source
// cannot be read. It leaves out the pages that are partly others', and small ranges.
func TestPagesOfFreshMemory(t *testing.T) {
	populate(0, leastPopulate) // an error for another reason
	wild, unmapWild, err := pages.Map(mib, pages.None)
	require.NoError(t, err)
	defer func() { require.NoError(t, unmapWild()) }()
	perPiece := int(pieceSize / pageSize)
	for name, c := range map[string]struct {
		copy       func([]device.Range) error
		from, size int
		want       int
	}{
		"fresh":         {func(l []device.Range) error { return CopyFresh(t.Context(), l) }, 0, pieceSize, perPiece},
		"not at a page": {func(l []device.Range) error { return CopyFresh(t.Context(), l) }, 1, pieceSize, perPiece - 1},
		"small":         {func(l []device.Range) error { return CopyFresh(t.Context(), l) }, 0, leastPopulate - 1, 0},
		"not fresh":     {func(l []device.Range) error { return Copy(t.Context(), l, mib, nil) }, 0, pieceSize, 0},
	} {
		t.Run(name, func(t *testing.T) {
			to, unmap, err := pages.Map(mib, pages.ReadWrite)
			require.NoError(t, err)
			defer func() { require.NoError(t, unmap()) }()
			err = c.copy([]device.Range{{Dst: address(to[c.from:]), Src: address(wild), Size: int64(c.size)}})
			assert.ErrorContains(t, err, "cannot be accessed")
			if cannotPopulate.Load() {
				t.Skip("this system provides no pages at once")
			}
			assert.Equal(t, c.want, resident(t, to))
		})
	}
}

// Without that call of the system, copies are the same.
func TestCopyWithoutPopulate(t *testing.T) {
	for _, cannot := range []bool{true, false} {
		before := cannotPopulate.Swap(cannot)
		from, to := make([]byte, 3*mib), make([]byte, 3*mib)
		for i := range from {
			from[i] = byte(i >> 8)
		}
		list := []device.Range{{Dst: address(to), Src: address(from), Size: mib + 1}, {Dst: address(to[mib+1:]), Src: address(from[mib+1:]), Size: 2*mib - 1}}
		assert.NoError(t, CopyFresh(t.Context(), list))
		cannotPopulate.Store(before)
		assert.True(t, bytes.Equal(from, to))
	}
}
