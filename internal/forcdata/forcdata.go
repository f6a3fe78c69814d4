// Package forcdata has what package cdevice offers that only package cdata calls, and that programs do not see.
package forcdata

import (
	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// ImportRecordBatch makes a record batch of arrow-go of a C struct of memory of the CPU: what an import, a host view and
// the release of the import do, in one object. It calls tooMany for a Release too many. It takes ownership of *arr, even
// if it returns an error. Package cdevice sets it.
var ImportRecordBatch func(arr *abi.ArrowArray, s *arrow.Schema, tooMany func()) (arrow.RecordBatch, error)

// StorageTypes is an option of imports of streams, a cdevice.ImportOption: extension types are not rebuilt, and the
// metadata has their names. Package cdevice sets it.
var StorageTypes any
