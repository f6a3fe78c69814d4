package text

import (
	"testing"

	"github.com/stretchr/testify/assert"
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
