// Package forcdata has what package cdevice offers that only package cdata calls, and that programs do not see: what
// arrow-go's package does, and the specification does not ask for. Package cdevice sets the variables.
package forcdata

// CountNulls sets the null counts that are unknown, of a wrapped *cdevice.RecordBatch or *cdevice.Array, before the export.
var CountNulls func(item any)

// WrapRecordReader is cdevice.WrapRecordReader for the CPU, a func(array.RecordReader) (*cdevice.RecordReader, error), with
// CountNulls for each batch.
var WrapRecordReader any
