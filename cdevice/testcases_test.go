package cdevice_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
)

// eachCase runs body for every type of arrow-go in every variant, with an array
// whose memory is checked to be free afterwards.
func eachCase(t *testing.T, body func(t *testing.T, arr arrow.Array)) {
	t.Helper()
	for _, c := range cases.All() {
		for _, v := range cases.Variants {
			t.Run(c.Name+"/"+string(v), func(t *testing.T) {
				checkLeaks(t)
				mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
				defer mem.AssertSize(t, 0)
				arr, err := c.Array(mem, v)
				require.NoError(t, err)
				defer arr.Release()
				body(t, arr)
			})
		}
	}
}

// testRows runs every row as an array and as a batch, with each kind of struct.
func testRows(t *testing.T, rows []badRow) {
	t.Helper()
	for _, row := range rows {
		for _, w := range []way{asArray, asBatch} {
			if row.only == "" || row.only == w {
				t.Run(row.name+"/"+string(w), func(t *testing.T) {
					eachKind(t, func(t *testing.T, k kind) { row.run(t, w, k) })
				})
			}
		}
	}
}
