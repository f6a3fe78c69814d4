//go:build cdata_over

package cdata

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"
)

// Without this, arrow-go's tests of bad input would pass if the stand-ins refused everything.
func TestStandInsTakeWhatIsRight(t *testing.T) {
	require.NoError(t, validateCArrayHeader(&CArrowArray{length: 1}))
	var arr CArrowArray
	setCArrayCounts(&arr, 2, 0)
	setCArrayBuffers(&arr, 2)
	defer freeCArrayBuffers(&arr)
	require.NoError(t, (&cimporter{arr: &arr, dt: arrow.PrimitiveTypes.Int32}).doImport())
}
