//go:build unix

package cdevice_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// A forked child has copies of the parent's structs and no Go runtime that works: multiprocessing
// of Python's with the start method fork makes such children, and they release the structs that
// they inherit.
func TestCallbacksInAForkedChildReturn(t *testing.T) {
	settles(t)
	batch := numbered(t, 1)[0]
	array := garbageArray()
	require.NoError(t, cdevice.ExportRecordBatch(batch, array, nil))
	defer cdevice.ReleaseStruct(array)
	reader := func() *cdevice.RecordReader {
		next, _ := countedSource(t)
		r := kept(readerFunc(numberedSchema, device.CPU, next, nil))(t)
		return r
	}
	var stream cdevice.CArrowDeviceArrayStream
	require.NoError(t, cdevice.ExportRecordReader(reader(), &stream))
	defer cdevice.ReleaseStruct(&stream)
	var words abi.ArrowArrayStream
	plain := cdevice.ArrayStreamFromPtr(addressOf(&words))
	require.NoError(t, cdevice.ExportRecordReader(reader(), plain))
	defer cdevice.ReleaseStruct(plain)
	c := exported(t, background, cpeer.Behaviour{SchemaRequests: 1, SchemaN: 1}, reader())
	require.NoError(t, c.WaitTasks(1))

	found, err := cpeer.UseInFork(abi.As[abi.ArrowDeviceArray](array), abi.As[abi.ArrowDeviceArrayStream](&stream), &words, c.Producer(), &c.Tasks()[0])
	require.NoError(t, err, "the child has ended by itself")
	assert.Equal(t, cpeer.Forked{
		ArrayReleased: true, StreamsReleased: true, Text: true, NothingFilled: true,
		GetSchema: syscall.ENOTSUP, GetNext: syscall.ENOTSUP, PlainGetNext: syscall.ENOTSUP, ExtractData: syscall.ENOTSUP,
	}, found)

	// The parent's are as they were.
	assert.NotZero(t, array.Array.Release)
	in, err := cdevice.ImportRecordReader(&stream)
	require.NoError(t, err)
	assert.True(t, in.Next())
	in.Release()
	c.Producer().Cancel()
}
