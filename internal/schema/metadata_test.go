package schema

import (
	"encoding/binary"
	"errors"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/testing/heap"
)

// The bytes are those that the specification describes, and not only what the reader reads.
func TestMetadataInBytes(t *testing.T) {
	want := []byte{2, 0, 0, 0, 3, 0, 0, 0, 'k', 'e', 'y', 5, 0, 0, 0, 'v', 'a', 'l', 'u', 'e', 0, 0, 0, 0, 2, 0, 0, 0, 0, 0xff}
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the bytes are those of a little-endian machine")
	}
	md := arrow.NewMetadata([]string{"key", ""}, []string{"value", "\x00\xff"})
	encoded, err := AppendMetadata(nil, "", md)
	require.NoError(t, err)
	assert.Equal(t, want, encoded)
	out := new(abi.ArrowSchema)
	require.NoError(t, ExportSchema(arrow.NewSchema(nil, &md), out))
	defer bridge.CallSchemaRelease(out)
	assert.Equal(t, want, abi.Slice[byte](out.Metadata, len(want)), "of a schema")
}

func TestMetadataWithoutASchemaGoesBothWays(t *testing.T) {
	for _, md := range []arrow.Metadata{
		arrow.NewMetadata([]string{"k"}, []string{"v"}),
		arrow.NewMetadata([]string{"", "same", "same"}, []string{"\x00\xff", "", "other"}),
	} {
		encoded, err := AppendMetadata([]byte("before"), "", md)
		require.NoError(t, err)
		assert.Equal(t, "before", string(encoded[:6]))
		back, err := ReadMetadata("", cBytes(encoded[6:]))
		require.NoError(t, err)
		assert.Equal(t, md.Keys(), back.Keys())
		assert.Equal(t, md.Values(), back.Values())
	}
	encoded, err := AppendMetadata(nil, "", arrow.Metadata{}) // which is NULL
	require.NoError(t, err)
	assert.Nil(t, encoded)
	md, err := ReadMetadata("", 0)
	require.NoError(t, err)
	assert.Zero(t, md.Len())
}

// The padding is in C memory, which malloc does not clear, and a template copies it.
func TestPaddingOfMetadataIsWritten(t *testing.T) {
	p := pairsOf(arrow.NewMetadata([]string{"k"}, []string{"v"}))
	require.Equal(t, 14, p.size())
	words := []uint32{0, 0, 0, 0xffffffff, 0xffffffff} // aligned, as the metadata of a block
	at := cursors{metadata: heap.AddressOf(words)}
	at.putMetadata(&p)
	written := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 20)
	assert.Equal(t, []byte{0, 0, 0xff}, written[14:17])
}

func TestErrorsOfMetadataNameTheirField(t *testing.T) {
	for _, row := range []struct {
		encoded []byte
		text    string
	}{
		{[]byte{255, 255, 255, 255}, "cdevice: import: a.b.n = -1, want 0 to 65536: invalid"},
		{[]byte{1, 0, 0, 0, 255, 255, 255, 255}, "cdevice: import: a.b.keys[0].length = -1, want at least 0: invalid"},
		{[]byte{1, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 127}, "cdevice: import: a.b.values[0].length = 2147483647"},
	} {
		_, err := ReadMetadata("a.b", cBytes(row.encoded))
		assert.ErrorContains(t, err, row.text)
		assert.ErrorIs(t, err, arrow.ErrInvalid)
	}
	many := make([]string, maxPairs+1)
	_, err := AppendMetadata(nil, "a.b", arrow.NewMetadata(many, many))
	assert.ErrorContains(t, err, "cdevice: export: a.b.n = 65537, want 0 to 65536")
	_, err = AppendMetadata(nil, "a.b", arrow.NewMetadata([]string{"k"}, []string{string(make([]byte, maxText))}))
	assert.ErrorContains(t, err, "cdevice: export: a.b, want at most 64 MiB")
	assert.False(t, errors.Is(err, arrow.ErrNotImplemented))
}
