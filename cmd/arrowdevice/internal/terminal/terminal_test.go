package terminal

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWrap(t *testing.T) {
	assert.Equal(t, []string{"one two", "three", "µµµµ six"}, Wrap("one two three µµµµ six", 8))
	assert.Equal(t, []string{"a", "longestword", "b", "c"}, Wrap("a longestword b\nc", 5))
	assert.Equal(t, []string{""}, Wrap("", 5))
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 64 << 10: "64 KiB", 1<<30 + 1<<29: "1.5 GiB", 81559 << 20: "79.6 GiB", 5 << 50: "5120 TiB"} {
		assert.Equal(t, want, Bytes(n))
	}
}

func TestStyle(t *testing.T) {
	assert.Equal(t, "\x1b[31mx\x1b[0m", Style(true).Red("x"))
	assert.Equal(t, "x", Style(false).Red("x"))
	assert.Empty(t, Style(true).Bold(""))
}

// A file that is no terminal has no colours, and 80 columns; /dev/null is a device and no terminal.
func TestFilesAreNoTerminals(t *testing.T) {
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	assert.False(t, Is(null))
	assert.False(t, Colours(null))
	assert.Equal(t, 80, Width(null))
}

func TestUTF8(t *testing.T) {
	for _, c := range []struct {
		all, ctype, lang string
		want             bool
	}{{"", "", "", false}, {"", "", "C.UTF-8", true}, {"C", "", "C.UTF-8", false}, {"", "en_US.utf8", "C", true}, {"POSIX", "en_US.utf8", "", false}} {
		t.Setenv("LC_ALL", c.all)
		t.Setenv("LC_CTYPE", c.ctype)
		t.Setenv("LANG", c.lang)
		assert.Equal(t, c.want, UTF8(), "%+v", c)
	}
}
