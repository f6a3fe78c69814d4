package cdevice_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/errno"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// Texts that are too long, both ways.

const longest = 64 << 10

// long has texts beyond the limit, and their shortened forms.
var long = map[string]struct{ text, imported, exported string }{
	"letters":                               {strings.Repeat("x", 1e6), strings.Repeat("x", longest) + "... (1000000 bytes)", strings.Repeat("x", longest-1-len("... (1000000 bytes)")) + "... (1000000 bytes)"},
	"characters, of which one would be cut": {"x" + strings.Repeat("ä", 1e5), "x" + strings.Repeat("ä", longest/2-1) + "... (200001 bytes)", ""},
	"not UTF-8":                             {strings.Repeat("\xffx", 1e5), strings.Repeat("\ufffdx", longest/2) + "... (200000 bytes)", ""},
	"the longest":                           {strings.Repeat("x", longest), strings.Repeat("x", longest), strings.Repeat("x", longest-1-len("... (65536 bytes)")) + "... (65536 bytes)"},
	"one less":                              {strings.Repeat("x", longest-1), strings.Repeat("x", longest-1), strings.Repeat("x", longest-1)},
	"one more":                              {strings.Repeat("x", longest+1), strings.Repeat("x", longest) + "... (65537 bytes)", ""},
	"NUL, exported":                         {strings.Repeat("\x00", 30_000), "", strings.Repeat("\ufffd", (longest-1-len("... (30000 bytes)"))/3) + "... (30000 bytes)"},
}

func TestLongTextOfAProducerIsCut(t *testing.T) {
	for name, row := range long {
		if strings.Contains(name, "exported") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			code := errno.Code(syscall.EIO)
			var err error
			for _, r := range []*cdevice.RecordReader{
				newScript(t).failing(0, code, row.text).reader(t), plainKind.script(t).failing(0, code, row.text).reader(t),
			} {
				_, err = numbersOf(t, r.All())
				var se *cdevice.ProducerError
				require.ErrorAs(t, err, &se)
				assert.True(t, row.imported == se.Message, "%d bytes, want %d", len(se.Message), len(row.imported))
			}
			p := consumed(t, soon(t), 0)
			require.Zero(t, p.begin())
			p.Error(5, row.text, nil)
			_, err = p.all()
			var ae *cdevice.ProducerError
			require.ErrorAs(t, err, &ae)
			assert.True(t, row.imported == ae.Message, "%d bytes, want %d", len(ae.Message), len(row.imported))
		})
	}
}

func TestLongTextForAConsumerIsCut(t *testing.T) {
	for name, row := range long {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			s := export(t, iterated(t, errors.New(row.text)))
			_, code := next(t, s)
			assert.EqualValues(t, errno.Code(syscall.EIO), code)
			testExported(t, abi.String(lastError(s)), row.exported)

			settles(t)
			failing := yields(t, twoColumns(t).Schema(), func(yield func(*cdevice.RecordBatch, error) bool) { yield(nil, errors.New(row.text)) })
			c := exported(t, background, cpeer.Behaviour{SchemaRequests: 1, SchemaN: 10}, failing)
			require.NoError(t, c.WaitReleased())
			_, text := c.Error()
			testExported(t, text, row.exported)
		})
	}
}

func testExported(t *testing.T, text, want string) {
	t.Helper()
	assert.Less(t, len(text), longest, "with the NUL, 64 KiB")
	assert.True(t, utf8.ValidString(text))
	if want != "" {
		assert.True(t, want == text, "%d bytes, want %d: %.100q", len(text), len(want), text[max(0, len(text)-100):])
	} else {
		assert.Greater(t, len(text), longest-50)
		assert.True(t, strings.HasSuffix(text, " bytes)"), text[len(text)-50:])
	}
}

// An import that is refused costs no more than the import: types are not printed at any length.
func TestErrorOfAWideTypeIsShort(t *testing.T) {
	checkLeaks(t)
	fields := make([]arrow.Field, 100_000)
	for i := range fields {
		fields[i] = arrow.Field{Name: fmt.Sprint("column ", i, strings.Repeat("x", 500)), Type: arrow.PrimitiveTypes.Int8}
	}
	wide := arrow.StructOf(fields...)
	for name, row := range map[string]struct {
		dt   arrow.DataType
		want string
	}{
		"struct": {wide, "n_buffers = 2, want 1 for struct<100000 fields>: invalid"},
		"list":   {arrow.ListViewOf(wide), "n_buffers = 2, want 3 for list_view<...>: invalid"},
		"runs":   {arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int16, wide), "n_buffers = 2, want 0 for run_end_encoded<...>: invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			f := foreignCase(t, "int64", asArray)
			defer f.free()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := cdevice.ImportArrayWithType(f.device, row.dt)
			require.ErrorContains(t, err, row.want)
			runtime.ReadMemStats(&after)
			assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(100e6), "nodes and fields, no text")
			assertReleased(t, f, 1)
		})
	}
}
