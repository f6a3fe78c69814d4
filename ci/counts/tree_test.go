package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The base is the revision that has last changed the file before what is checked out, so that small growths add up.
func TestTheBaseIsTheLastChangeOfTheFile(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git:", err)
	}
	t.Chdir(t.TempDir())
	git(t, "init", "--quiet")
	first := commit(t, "library", "1")
	_, err := baseOf(fileName)
	assert.ErrorContains(t, err, "HEAD^", "there is no earlier revision")

	commit(t, fileName, "1")
	assert.Equal(t, first, base(t), "the file is new")
	file := commit(t, fileName, "2")
	commit(t, "library", "2")
	commit(t, "library", "3")
	assert.Equal(t, file, base(t))
	require.NoError(t, os.WriteFile("library", []byte("4"), 0o644))
	assert.Equal(t, file, base(t), "of what is not committed")
	git(t, "checkout", "--quiet", "library")
	other := commit(t, fileName, "3")
	assert.Equal(t, file, base(t), "HEAD itself has changed the file")
	require.NoError(t, os.WriteFile(fileName, []byte("4"), 0o644))
	assert.Equal(t, other, base(t), "of a change of the file that is not committed")
}

func base(t *testing.T) string {
	t.Helper()
	revision, err := baseOf(fileName)
	require.NoError(t, err)
	return revision
}

func git(t *testing.T, args ...string) string {
	t.Helper()
	identity := []string{"-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "commit.gpgsign=false"}
	out, err := output(".", "git", append(identity, args...)...)
	require.NoError(t, err)
	return out
}

// commit returns the revision of a commit that writes a file.
func commit(t *testing.T, file, content string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(content), 0o644))
	git(t, "add", file)
	git(t, "commit", "--quiet", "--message", file)
	return git(t, "rev-parse", "HEAD")
}
