package abi

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
)

// The numbers of the specification's structs on 64-bit platforms (DESIGN: ABI).
func TestGoldenLayout(t *testing.T) {
	var (
		schema   ArrowSchema
		array    ArrowArray
		plain    ArrowArrayStream
		dev      ArrowDeviceArray
		stream   ArrowDeviceArrayStream
		task     ArrowAsyncTask
		producer ArrowAsyncProducer
		handler  ArrowAsyncDeviceStreamHandler
	)
	for _, row := range []struct {
		name      string
		got, want uintptr
	}{
		{"sizeof ArrowSchema", unsafe.Sizeof(schema), 72},
		{"ArrowSchema.format", unsafe.Offsetof(schema.Format), 0},
		{"ArrowSchema.name", unsafe.Offsetof(schema.Name), 8},
		{"ArrowSchema.metadata", unsafe.Offsetof(schema.Metadata), 16},
		{"ArrowSchema.flags", unsafe.Offsetof(schema.Flags), 24},
		{"ArrowSchema.n_children", unsafe.Offsetof(schema.NChildren), 32},
		{"ArrowSchema.children", unsafe.Offsetof(schema.Children), 40},
		{"ArrowSchema.dictionary", unsafe.Offsetof(schema.Dictionary), 48},
		{"ArrowSchema.release", unsafe.Offsetof(schema.Release), 56},
		{"ArrowSchema.private_data", unsafe.Offsetof(schema.PrivateData), 64},

		{"sizeof ArrowArray", unsafe.Sizeof(array), 80},
		{"ArrowArray.length", unsafe.Offsetof(array.Length), 0},
		{"ArrowArray.null_count", unsafe.Offsetof(array.NullCount), 8},
		{"ArrowArray.offset", unsafe.Offsetof(array.Offset), 16},
		{"ArrowArray.n_buffers", unsafe.Offsetof(array.NBuffers), 24},
		{"ArrowArray.n_children", unsafe.Offsetof(array.NChildren), 32},
		{"ArrowArray.buffers", unsafe.Offsetof(array.Buffers), 40},
		{"ArrowArray.children", unsafe.Offsetof(array.Children), 48},
		{"ArrowArray.dictionary", unsafe.Offsetof(array.Dictionary), 56},
		{"ArrowArray.release", unsafe.Offsetof(array.Release), 64},
		{"ArrowArray.private_data", unsafe.Offsetof(array.PrivateData), 72},

		{"sizeof ArrowArrayStream", unsafe.Sizeof(plain), 40},
		{"ArrowArrayStream.get_schema", unsafe.Offsetof(plain.GetSchema), 0},
		{"ArrowArrayStream.get_next", unsafe.Offsetof(plain.GetNext), 8},
		{"ArrowArrayStream.get_last_error", unsafe.Offsetof(plain.GetLastError), 16},
		{"ArrowArrayStream.release", unsafe.Offsetof(plain.Release), 24},
		{"ArrowArrayStream.private_data", unsafe.Offsetof(plain.PrivateData), 32},

		{"sizeof ArrowDeviceArray", unsafe.Sizeof(dev), 128},
		{"ArrowDeviceArray.device_id", unsafe.Offsetof(dev.DeviceID), 80},
		{"ArrowDeviceArray.device_type", unsafe.Offsetof(dev.DeviceType), 88},
		{"ArrowDeviceArray.sync_event", unsafe.Offsetof(dev.SyncEvent), 96},
		{"ArrowDeviceArray.reserved", unsafe.Offsetof(dev.Reserved), 104},

		{"sizeof ArrowDeviceArrayStream", unsafe.Sizeof(stream), 48},
		{"ArrowDeviceArrayStream.get_schema", unsafe.Offsetof(stream.GetSchema), 8},
		{"ArrowDeviceArrayStream.get_next", unsafe.Offsetof(stream.GetNext), 16},
		{"ArrowDeviceArrayStream.get_last_error", unsafe.Offsetof(stream.GetLastError), 24},
		{"ArrowDeviceArrayStream.release", unsafe.Offsetof(stream.Release), 32},
		{"ArrowDeviceArrayStream.private_data", unsafe.Offsetof(stream.PrivateData), 40},

		{"sizeof ArrowAsyncTask", unsafe.Sizeof(task), 16},
		{"sizeof ArrowAsyncProducer", unsafe.Sizeof(producer), 40},
		{"ArrowAsyncProducer.request", unsafe.Offsetof(producer.Request), 8},
		{"ArrowAsyncProducer.cancel", unsafe.Offsetof(producer.Cancel), 16},
		{"ArrowAsyncProducer.additional_metadata", unsafe.Offsetof(producer.AdditionalMetadata), 24},
		{"ArrowAsyncProducer.private_data", unsafe.Offsetof(producer.PrivateData), 32},
		{"sizeof ArrowAsyncDeviceStreamHandler", unsafe.Sizeof(handler), 48},
		{"ArrowAsyncDeviceStreamHandler.producer", unsafe.Offsetof(handler.Producer), 32},
	} {
		assert.Equal(t, row.want, row.got, row.name)
	}
}
