// Package forcdata has what package cdevice offers that only package cdata calls, and that programs do not see: what
// arrow-go's package does, and the specification does not ask for. Package cdevice sets the variables.
package forcdata

// LikeArrowGo is an option of imports of streams, a cdevice.ImportOption. Extension types are not rebuilt, and the metadata
// has their names; an unknown null count of a record batch is counted; a dropped asynchronous task is extracted into a struct,
// since arrow-go's producer writes through NULL.
var LikeArrowGo any

// CountNulls sets the null counts that are unknown, of a wrapped *cdevice.RecordBatch or *cdevice.Array, before the export.
var CountNulls func(item any)

// WrapRecordReader is cdevice.WrapRecordReader for the CPU, a func(array.RecordReader) (*cdevice.RecordReader, error), with
// CountNulls for each batch.
var WrapRecordReader any
