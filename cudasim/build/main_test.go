package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheLibraryIsCopiedToAFileOrIntoAFolder(t *testing.T) {
	dir := t.TempDir()
	built := filepath.Join(dir, "libcuda.so.1")
	require.NoError(t, os.WriteFile(built, []byte("a library"), 0o600))
	out := t.TempDir()
	for _, c := range []struct{ out, want string }{
		{out, filepath.Join(out, "libcuda.so.1")},
		{out, filepath.Join(out, "libcuda.so.1")}, // again, over the first
		{filepath.Join(out, "other.so"), filepath.Join(out, "other.so")},
	} {
		path, err := copyTo(built, c.out)
		require.NoError(t, err)
		assert.Equal(t, c.want, path)
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, "a library", string(content))
	}
	left, err := os.ReadDir(out)
	require.NoError(t, err)
	assert.Len(t, left, 2)
	_, err = copyTo(built, filepath.Join(out, "no", "folder", "lib.so"))
	assert.Error(t, err)
}
