package doctor

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A file of the current folder with the name of a library is not that library.
func TestPeersAreNotOfTheCurrentFolder(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rmm.py"), []byte("raise RuntimeError('the wrong one')"), 0o666))
	t.Chdir(dir)
	p := examinePeer(context.Background(), "python3", "rmm", time.Minute)
	assert.NotContains(t, p.Error, "the wrong one")
	assert.NotEmpty(t, p.State)
}
