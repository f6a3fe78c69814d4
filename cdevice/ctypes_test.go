package cdevice_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// The public structs have the fields of the internal mirrors, which are compared with C, at the
// same offsets.
func TestPublicStructsAreThoseOfC(t *testing.T) {
	sameStruct[cdevice.CArrowDeviceArray, abi.ArrowDeviceArray](t)
	sameStruct[cdevice.CArrowDeviceArrayStream, abi.ArrowDeviceArrayStream](t)
	sameStruct[cdevice.CArrowAsyncDeviceStreamHandler, abi.ArrowAsyncDeviceStreamHandler](t)
}

func sameStruct[Public, Mirror any](t *testing.T) {
	t.Helper()
	sameLayout(t, reflect.TypeFor[Public](), reflect.TypeFor[Mirror]())
}

func sameLayout(t *testing.T, public, mirror reflect.Type) {
	t.Helper()
	assert.Equal(t, mirror.Size(), public.Size(), public)
	assert.Equal(t, mirror.Align(), public.Align(), public)
	require.Equal(t, mirror.NumField(), public.NumField(), public)
	for i := range mirror.NumField() {
		want, got := mirror.Field(i), public.Field(i)
		assert.Equal(t, want.Name, got.Name)
		assert.Equal(t, want.Offset, got.Offset, got.Name)
		if want.Type.Kind() == reflect.Struct {
			sameLayout(t, got.Type, want.Type)
			continue
		}
		assert.Equal(t, want.Type, got.Type, got.Name)
	}
}
