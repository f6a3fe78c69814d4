package protofield_test

import (
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/arrowdevice/arrowdevice/internal/protofield"
)

// message has a field of each function that appends, and fields of the fixed sizes.
func message() []byte {
	b := protofield.AppendBytes(nil, 1, "text")
	b = protofield.AppendInt(b, 2, int64(-5))
	b = protofield.AppendSint(b, 3, -7)
	b = protofield.AppendInts(b, 4, []int64{1, 1 << 40, -1})
	b = protofield.AppendMessage(b, 5, nil)
	b = protowire.AppendFixed32(protowire.AppendTag(b, 6, protowire.Fixed32Type), 1)
	b = protowire.AppendFixed64(protowire.AppendTag(b, 7, protowire.Fixed64Type), 1)
	return protofield.AppendInt(b, 4, 9) // not packed
}

// plenty is a budget that no test exceeds.
func plenty() *protofield.Budget { b := protofield.Budget(1 << 20); return &b }

func TestFieldsThatWereAppended(t *testing.T) {
	var numbers []protofield.Number
	var list []int64
	for f, err := range protofield.Fields(message()) {
		require.NoError(t, err)
		numbers = append(numbers, f.Number)
		switch f.Number {
		case 1:
			assert.Equal(t, "text", string(f.Bytes))
			assert.Equal(t, len(f.Bytes), cap(f.Bytes), "an append must not change the message")
		case 2:
			assert.Equal(t, int64(-5), int64(f.Int))
		case 3:
			assert.Equal(t, int64(-7), f.Sint())
		case 4:
			list, err = f.AppendTo(list, plenty())
			require.NoError(t, err)
		case 5:
			assert.Empty(t, f.Bytes)
		}
	}
	assert.Equal(t, []protofield.Number{1, 2, 3, 4, 5, 4}, numbers)
	assert.Equal(t, []int64{1, 1 << 40, -1, 9}, list)
}

func TestZerosAreLeftOut(t *testing.T) {
	b := protofield.AppendBytes(nil, 1, "")
	b = protofield.AppendInt(b, 2, 0)
	b = protofield.AppendSint(b, 3, 0)
	assert.Empty(t, protofield.AppendInts(b, 4, nil))
}

func TestMalformedMessages(t *testing.T) {
	for _, c := range []struct {
		name    string
		message []byte
		want    string
	}{
		{"tag cut off", []byte{0x80}, "a number is cut off or too large"},
		{"number cut off", []byte{2 << 3}, "a number is cut off or too large"},
		{"number too large", []byte{2 << 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2}, "a number is cut off or too large"},
		{"field 0", []byte{2, 0}, "a field has the number 0"},
		{"field beyond", []byte{0xfa, 0xff, 0xff, 0xff, 0xff, 0x7f, 0}, "too large"},
		{"bytes cut off", []byte{1<<3 | 2, 3, 'a'}, "field 1 is cut off: of its 3 bytes, 1 are left"},
		{"bytes without an end", []byte{1<<3 | 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0}, "of its 18446744073709551615 bytes"},
		{"fixed cut off", []byte{5<<3 | 1, 0, 0}, "field 5 is cut off"},
		{"a group", []byte{1<<3 | 3, 1<<3 | 4}, "field 1 has the wire type 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, err := range protofield.Fields(c.message) {
				assert.ErrorContains(t, err, c.want)
			}
			_, _, err := protofield.NewReader([][]byte{c.message}).Next()
			assert.ErrorContains(t, err, c.want)
		})
	}
	_, err := protofield.Field{Bytes: []byte{1, 0x80}}.AppendTo(nil, plenty())
	assert.ErrorContains(t, err, "a number is cut off")
}

// A list is allocated once, of the size that it needs, and never beyond the budget.
func TestBudget(t *testing.T) {
	b := slices.Repeat([]byte{1<<3 | 2, 0}, 100)
	budget := protofield.Budget(1000)
	list, err := protofield.List[int64](b, 1, &budget)
	require.NoError(t, err)
	assert.Equal(t, 100, cap(list))
	none, err := protofield.List[int64](b, 2, &budget)
	require.NoError(t, err)
	assert.Nil(t, none)
	_, err = protofield.List[int64](b, 1, &budget)
	assert.ErrorIs(t, err, protofield.ErrBudget)

	budget = 15
	packed := protofield.Field{Bytes: []byte{1, 2}}
	_, err = packed.AppendTo(nil, &budget)
	assert.ErrorIs(t, err, protofield.ErrBudget)
	budget = 7
	_, err = protofield.Field{Int: 1}.AppendTo(nil, &budget)
	assert.ErrorIs(t, err, protofield.ErrBudget)
}

// A field whose value the caller reads in part, or not at all, is skipped.
func TestReader(t *testing.T) {
	b := protofield.AppendBytes(protofield.AppendInt(nil, 9, 1), 1, "some bytes")
	b = protofield.AppendBytes(b, 2, "skipped")
	b = protofield.AppendBytes(b, 3, "the rest")
	for size := 1; size <= len(b); size++ {
		r := protofield.NewReader(append(slices.Collect(slices.Chunk(b, size)), nil))
		n, length, err := r.Next()
		require.NoError(t, err)
		assert.Equal(t, protofield.Number(1), n)
		assert.Equal(t, 10, length)
		part := make([]byte, 4)
		_, err = io.ReadFull(r, part)
		require.NoError(t, err)
		assert.Equal(t, "some", string(part))
		_, _, err = r.Next()
		require.NoError(t, err)
		n, _, err = r.Next()
		require.NoError(t, err)
		assert.Equal(t, protofield.Number(3), n)
		rest, err := io.ReadAll(r)
		require.NoError(t, err)
		assert.Equal(t, "the rest", string(rest))
		_, _, err = r.Next()
		assert.Equal(t, io.EOF, err)
	}
}

// FuzzFields: Fields reads what protowire reads, and Reader the same from any pieces.
func FuzzFields(f *testing.F) {
	f.Add(message(), 3)
	f.Add([]byte{1<<3 | 3, 1<<3 | 4}, 1)
	f.Add([]byte{2 << 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, 1)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		want, ok := expected(b)
		var got []protofield.Field
		var failed error
		for field, err := range protofield.Fields(b) {
			if err != nil {
				failed = err
				break
			}
			got = append(got, field)
			_, _ = field.AppendTo(nil, plenty())
		}
		require.Equal(t, ok, failed == nil, "%v", failed)
		require.Equal(t, want, got)

		want = slices.DeleteFunc(want, func(f protofield.Field) bool { return f.Bytes == nil })
		r := protofield.NewReader(slices.Collect(slices.Chunk(b, max(size, 1))))
		for _, w := range want {
			n, length, err := r.Next()
			require.NoError(t, err)
			require.Equal(t, w.Number, n)
			value := make([]byte, length)
			_, err = io.ReadFull(r, value)
			require.NoError(t, err)
			require.Equal(t, w.Bytes, value)
		}
		_, _, err := r.Next()
		require.Equal(t, ok, errors.Is(err, io.EOF), "%v", err)
	})
}

// expected reads a message with protowire, and reports whether it is well-formed proto3.
func expected(b []byte) (fields []protofield.Field, ok bool) {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 || kind == protowire.StartGroupType {
			return fields, false
		}
		b = b[size:]
		f := protofield.Field{Number: n}
		switch kind {
		case protowire.VarintType:
			f.Int, size = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			f.Bytes, size = protowire.ConsumeBytes(b)
		default:
			size = protowire.ConsumeFieldValue(n, kind, b)
		}
		if size < 0 {
			return fields, false
		}
		b = b[size:]
		if kind == protowire.VarintType || kind == protowire.BytesType {
			fields = append(fields, f)
		}
	}
	return fields, true
}
