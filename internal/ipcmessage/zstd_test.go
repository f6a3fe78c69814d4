package ipcmessage

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The largest window is found behind blocks of all kinds, checksums and frames that are skipped. What
// ends early has no more frames.
func TestWindow(t *testing.T) {
	frame := func(content []byte, opts ...zstd.EOption) []byte {
		var b bytes.Buffer
		w, err := zstd.NewWriter(&b, opts...)
		require.NoError(t, err)
		for part := range slices.Chunk(content, 100_000) {
			_, err = w.Write(part)
			require.NoError(t, err)
			require.NoError(t, w.Flush())
		}
		require.NoError(t, w.Close())
		return b.Bytes()
	}
	random := make([]byte, 300_000) // blocks that are not compressed
	for i, x := 0, uint32(1); i < len(random); i++ {
		x = x*1664525 + 1013904223
		random[i] = byte(x >> 24)
	}
	texts := bytes.Repeat([]byte("a text, "), 100_000) // compressed ones
	crc, window64k := zstd.WithEncoderCRC(true), zstd.WithWindowSize(1<<16)
	wide := []byte("\x28\xb5\x2f\xfd\x00\xb0\x01\x00\x00")                               // a window of 4 GiB, and an empty block
	single := []byte("\x28\xb5\x2f\xfd\xe0\x00\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00") // of a declared size of 8 GiB
	repeated := []byte("\x28\xb5\x2f\xfd\x00\x00\x02\x08\x00x\x03\x08\x00y")             // 256 times x, and y
	reserved := []byte("\x28\xb5\x2f\xfd\x00\x00\x07\x00\x00")                           // a block that ends decompression
	skipped := append([]byte("\x53\x2a\x4d\x18\x09\x00\x00\x00"), wide...)               // a window that is not read
	beyond := []byte("\x53\x2a\x4d\x18\xff\xff\xff\xff")                                 // skips what is not there
	decoder, err := zstd.NewReader(nil)
	require.NoError(t, err)
	defer decoder.Close()
	for name, row := range map[string]struct {
		frames [][]byte
		want   uint64
	}{
		"nothing":      {nil, 0},
		"no frame":     {[][]byte{[]byte("not zstd"), wide}, 0},
		"the default":  {[][]byte{frame(texts)}, 8 << 20},
		"wide":         {[][]byte{wide}, 4 << 30},
		"one segment":  {[][]byte{single}, 8 << 30},
		"texts":        {[][]byte{frame(texts, crc, window64k), wide}, 4 << 30},
		"no checksum":  {[][]byte{frame(texts, zstd.WithEncoderCRC(false), window64k), wide}, 4 << 30},
		"random":       {[][]byte{frame(random, crc, window64k), wide}, 4 << 30},
		"repeated":     {[][]byte{repeated, wide}, 4 << 30},
		"skipped":      {[][]byte{skipped, repeated, skipped}, 1 << 10},
		"then wide":    {[][]byte{skipped, wide}, 4 << 30},
		"not the last": {[][]byte{wide, repeated}, 4 << 30},
		"an error":     {[][]byte{reserved, wide}, 1 << 10},
		"beyond":       {[][]byte{beyond, wide}, 0},
		"cut":          {[][]byte{wide[:6]}, 4 << 30},
		"half a block": {[][]byte{frame(random, crc, window64k)[:100_000]}, 1 << 16},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, row.want, window(bytes.Join(row.frames, nil)))
		})
	}
	// The frames written by hand are ones.
	_, err = decoder.DecodeAll(slices.Concat(frame(random, crc), skipped, repeated), nil)
	assert.NoError(t, err)
	// A decompressor finds no window that is not found here: of two that take windows of different sizes, only one reads it.
	const small, large = 1 << 16, 8 << 20
	exceeds := func(most uint64) func(b []byte) bool {
		r, err := zstd.NewReader(nil, zstd.WithDecoderMaxWindow(most), zstd.WithDecoderConcurrency(1))
		require.NoError(t, err)
		t.Cleanup(r.Close)
		return func(b []byte) bool {
			require.NoError(t, r.Reset(bytes.NewReader(b)))
			_, err := io.Copy(io.Discard, r)
			return errors.Is(err, zstd.ErrWindowSizeExceeded)
		}
	}
	exceedsSmall, exceedsLarge := exceeds(small), exceeds(large)
	good := slices.Concat(frame(random[:5000], crc, window64k), skipped, repeated, frame(texts[:5000], crc, window64k))
	numbers, found := rand.New(rand.NewPCG(1, 2)), 0
	for range 10_000 {
		b := slices.Clone(good)
		for range 1 + numbers.IntN(3) {
			at := numbers.IntN(20)
			if numbers.IntN(2) == 0 {
				at = len(b) - 1 - numbers.IntN(100)
			}
			b[at] = byte(numbers.Uint32())
		}
		if exceedsSmall(b) && !exceedsLarge(b) {
			require.Greater(t, window(b), uint64(small))
			found++
		}
	}
	assert.Greater(t, found, 100)
}
