package cdevice_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
)

// foreignCase makes a foreign array of a case, named as "utf8" or "utf8/empty";
// the variant is nulls where none is named.
func foreignCase(t testing.TB, name string, w way) *foreignArray {
	t.Helper()
	name, variant, found := strings.Cut(name, "/")
	if !found {
		variant = string(cases.Nulls)
	}
	c, ok := casesByName[name]
	require.True(t, ok, "no case %q", name)
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	arr, err := c.Array(mem, cases.Variant(variant))
	require.NoError(t, err)
	defer arr.Release()
	return newForeign(t, arr, w)
}

var casesByName = func() map[string]cases.Case {
	m := map[string]cases.Case{}
	for _, c := range cases.All() {
		m[c.Name] = c
	}
	return m
}()

// eachForeign runs body for every case as a subtest.
func eachForeign(t *testing.T, variants []cases.Variant, w way, body func(t *testing.T, f *foreignArray)) {
	t.Helper()
	for _, c := range cases.All() {
		for _, v := range variants {
			t.Run(fmt.Sprintf("%s/%s/%s", c.Name, v, w), func(t *testing.T) {
				checkLeaks(t)
				f := foreignCase(t, c.Name+"/"+string(v), w)
				defer f.free()
				body(t, f)
			})
		}
	}
}

// hasBitmap reports whether arrays of a type have a validity bitmap.
func hasBitmap(dt arrow.DataType) bool {
	switch dt.ID() {
	case arrow.NULL, arrow.SPARSE_UNION, arrow.DENSE_UNION, arrow.RUN_END_ENCODED:
		return false
	}
	return true
}

// importAndUse imports the possibly corrupt f, and uses the result as far as the level of
// validation allows. It returns the error of the import.
func importAndUse(t testing.TB, f *foreignArray, what string, full bool) error {
	t.Helper()
	releases := int64(1)
	if f.device.Array.Release == 0 {
		releases = 0
	}
	var got imported
	var err error
	noPanic(t, what, func() {
		if got, err = f.importKnown(); full {
			got, err = validated(got, err)
		}
	})
	if err == nil && got != nil {
		noPanic(t, what, func() {
			assert.Zero(t, f.counts[0], "%s: released early", what)
			passOn(t, got)
			if full {
				view, copied := readAll(t, got)
				assert.NoError(t, view, what)
				assert.NoError(t, copied, what)
			}
		})
		noPanic(t, what, got.Release)
	}
	if f.device.Array.Release != 0 || f.counts[0] != releases || f.counts[1] != 0 {
		t.Errorf("%s: release %#x, %d calls of the root's, want %d, and %d below, want 0", what, f.device.Array.Release, f.counts[0], releases, f.counts[1])
	}
	return err
}
