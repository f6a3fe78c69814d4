package cdevice_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// However many views share how much, the cost is that of the views and of the bytes.
func TestSharedTextIsValidatedOnce(t *testing.T) {
	for _, row := range []struct{ size, views, length int }{
		{64 << 20, 3, 64 << 20},
		{64 << 20, 1000, 32 << 20},
		{1 << 20, 100_000, 900_000},
		{1 << 20, 1 << 20, 300},
		{4096, 1 << 20, 4096},
		{64 << 20, 1 << 20, 1 << 20},
	} {
		t.Run(fmt.Sprint(row), func(t *testing.T) {
			if underASan && row.size > 1<<20 {
				t.Skip("AddressSanitizer takes a minute for it")
			}
			text := mapped(t, row.size)
			views := as[arrow.ViewHeader](mapped(t, 16*row.views))
			r := rand.New(rand.NewPCG(uint64(row.views), 7))
			for i := range views {
				views[i].SetIndexOffset(0, int32(r.IntN(row.size-row.length+1)))
				*(*int32)(unsafe.Pointer(&views[i])) = int32(row.length)
			}
			sizes := as[int64](mapped(t, 8))
			sizes[0] = int64(row.size)
			node := cpeer.Node{Length: int64(row.views), Buffers: []uintptr{0, sliceAddress(views), sliceAddress(text), sliceAddress(sizes)}}
			ctx := &lookedAt{Context: context.Background()}
			require.NoError(t, fullyImport(t, ctx, node, arrow.BinaryTypes.StringView))
			assert.LessOrEqual(t, ctx.looks, (2*row.size+1000*row.views)>>20+3)
		})
	}
}

// Views are accepted if each of them is valid, in any order: bytes beside them do not matter, but a
// truncated character does.
func TestSharedTextIsValidatedExactly(t *testing.T) {
	checkLeaks(t)
	r := rand.New(rand.NewPCG(2026, 11))
	pieces := []string{"x", "ä", "€", "😀", "plain text of some length ", "\xff", "\x80", "\xe2\x82", "\xf0\x9f\x98"}
	accepted, refused := 0, 0
	for round := range 3000 {
		damage := []int{5, 5, 6, 9}[r.IntN(4)] // pieces in use: mostly the good ones
		var b []byte
		for size := 600 + r.IntN(3000); len(b) < size; {
			piece := pieces[r.IntN(5)]
			if damage > 5 && r.IntN(300) == 0 {
				piece = pieces[r.IntN(damage)]
			}
			b = append(b, piece...)
		}
		a := newArena()
		text := allocC[byte](a, len(b))
		copy(text, b)
		views := allocC[arrow.ViewHeader](a, 1+r.IntN(30))
		valid := true
		for i := range views {
			from := r.IntN(len(b) - 300)
			to := from + 13 + r.IntN(len(b)-from-12)
			if r.IntN(50) > 0 { // at characters
				for from < to-13 && !utf8.RuneStart(b[from]) {
					from++
				}
				for to < len(b) && !utf8.RuneStart(b[to]) {
					to++
				}
			}
			value := b[from:to]
			views[i].SetBytes(value)
			views[i].SetIndexOffset(0, int32(from))
			valid = valid && utf8.Valid(value)
		}
		sizes := allocC[int64](a, 1)
		sizes[0] = int64(len(b))
		err := fullyImport(t, context.Background(), cpeer.Node{Length: int64(len(views)), Buffers: []uintptr{0, sliceAddress(views), sliceAddress(text), sliceAddress(sizes)}}, arrow.BinaryTypes.StringView)
		if valid {
			accepted++
			assert.NoError(t, err, round)
		} else {
			refused++
			if assert.ErrorContains(t, err, ", want valid UTF-8", round) {
				var i int
				_, scanned := fmt.Sscanf(strings.TrimPrefix(err.Error(), "cdevice: validate: array."), "values[%d]", &i)
				require.NoError(t, scanned, err)
				from := int(views[i].BufferOffset())
				assert.False(t, utf8.Valid(b[from:from+views[i].Len()]), "round %d: value %d is valid", round, i)
			}
		}
		a.free()
		if t.Failed() {
			return
		}
	}
	assert.Greater(t, accepted, 500)
	assert.Greater(t, refused, 500)
}

// One text of many megabytes is validated in pieces, which must not split a character.
func TestLongTextIsValidatedExactly(t *testing.T) {
	for _, char := range []string{"ä", "€", "😀"} {
		for shift := range len(char) {
			text := []byte(strings.Repeat("x", shift) + strings.Repeat(char, 1_200_000))
			a := newArena()
			memory := allocC[byte](a, len(text))
			copy(memory, text)
			offsets := allocC[int64](a, 2)
			offsets[1] = int64(len(text))
			node := cpeer.Node{Length: 1, Buffers: []uintptr{0, sliceAddress(offsets), sliceAddress(memory)}}
			assert.NoError(t, fullyImport(t, context.Background(), node, arrow.BinaryTypes.LargeString))
			for _, at := range []int{0, 1 << 20, 1<<20 - 1, 1<<20 + 3, 2 << 20, len(text) - 1} {
				memory[at] = 0xff
				assert.ErrorContains(t, fullyImport(t, context.Background(), node, arrow.BinaryTypes.LargeString), "values[0], want valid UTF-8")
				memory[at] = text[at]
			}
			copy(memory[1<<20-10:], bytes.Repeat([]byte{0x80}, 20))
			assert.Error(t, fullyImport(t, context.Background(), node, arrow.BinaryTypes.LargeString))
			a.free()
		}
	}
}
