package cdevice_test

import (
	"fmt"
	"io"
	"reflect"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// Composed readers: the effects of Map and Prefetch, their order, and the ownership of batches.

// digit is a function for Map that appends a digit to the number of a batch.
func digit(t testing.TB, d int) batchFunc {
	return func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) {
		return numberedBatch(t, numberOf(t, b)*10+d), nil
	}
}

// Where Prefetch comes after Map, the function is called ahead too; before it, with the batch
// that is asked for.
func TestMapIsCalledWhereItsBatchIsAskedFor(t *testing.T) {
	checkLeaks(t)
	for name, ahead := range map[string]int64{"below a Prefetch": 3, "above a Prefetch": 1} {
		var calls atomic.Int64
		count := func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) {
			calls.Add(1)
			return b, nil
		}
		s := newScript(t, numbered(t, 9)...)
		r, err := cdevice.ImportRecordReader(s.stream)
		require.NoError(t, err)
		if ahead > 1 {
			r.Map(count).Prefetch(2)
		} else {
			r.Prefetch(2).Map(count)
		}
		require.True(t, r.Next())
		within.Eventually(t, "the batches ahead", func() bool { return s.nexts.Load() == 3 })
		within.Eventually(t, name, func() bool { return calls.Load() == ahead })
		for range 100 { // long enough for one too many
			runtime.Gosched()
		}
		assert.Equal(t, ahead, calls.Load(), name)
		release(t, r)
	}
}

// givenBack is a reader of n batches without rows, and counts those that were released.
func givenBack(t *testing.T, n int) (*cdevice.RecordReader, *atomic.Int64) {
	t.Helper()
	released := new(atomic.Int64)
	r, err := readerFunc(emptySchema, device.CPU, func() (*cdevice.RecordBatch, error) {
		if n--; n < 0 {
			return nil, io.EOF
		}
		return ownedBatch(t, func() { released.Add(1) }), nil
	}, nil)
	require.NoError(t, err)
	t.Cleanup(r.Release)
	return r, released
}

var emptySchema = arrow.NewSchema(nil, nil)

func TestMapBorrowsAndTakes(t *testing.T) {
	checkLeaks(t)
	t.Run("another batch", func(t *testing.T) {
		r, released := givenBack(t, 3)
		var made atomic.Int64
		r.Map(func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) {
			assert.Zero(t, released.Load()-made.Load(), "the batch of f is there")
			return ownedBatch(t, func() { made.Add(1) }), nil
		})
		for i := range int64(3) {
			require.True(t, r.Next())
			assert.Equal(t, i+1, released.Load(), "f has returned")
			assert.Equal(t, i, made.Load(), "this one is in use")
		}
		assert.False(t, r.Next())
		assert.EqualValues(t, 3, made.Load())
	})
	t.Run("the same batch", func(t *testing.T) {
		r, released := givenBack(t, 3)
		var given *cdevice.RecordBatch
		r.Map(func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) {
			given = b
			return b, nil
		})
		for i := range int64(3) {
			require.True(t, r.Next())
			assert.Same(t, given, r.RecordBatch())
			assert.Equal(t, i, released.Load())
		}
		assert.False(t, r.Next())
		assert.EqualValues(t, 3, released.Load())
	})
	t.Run("a kept batch", func(t *testing.T) {
		r, released := givenBack(t, 1)
		var kept *cdevice.RecordBatch
		r.Map(func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) {
			b.Retain()
			kept = b
			return ownedBatch(t, nil), nil
		})
		require.True(t, r.Next())
		assert.Zero(t, released.Load())
		kept.Release()
		assert.EqualValues(t, 1, released.Load())
	})
	t.Run("a slice", func(t *testing.T) {
		r, released := givenBack(t, 1)
		r.Map(func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) { return b.Slice(0, 0) })
		require.True(t, r.Next())
		assert.Zero(t, released.Load(), "it shares the memory")
		assert.False(t, r.Next())
		assert.EqualValues(t, 1, released.Load())
	})
}

// elsewhere is a device of another type.
type elsewhere struct{ device.Device }

func (elsewhere) ID() device.ID { return device.ID{Type: device.ExtDev} }

// A function that does not return a batch of the stream ends it; its argument and its result are
// each released once.
func TestFunctionThatFailsEndsTheStream(t *testing.T) {
	other := func(t *testing.T, more func()) *cdevice.RecordBatch { return ownedBatch(t, more) }
	wider := arrow.NewSchema([]arrow.Field{{Name: "x", Type: arrow.Null}}, nil)
	for name, row := range map[string]struct {
		f     func(t *testing.T, b *cdevice.RecordBatch, released func()) (*cdevice.RecordBatch, error)
		makes int64 // batches of its own
		want  string
		is    error
		code  syscall.Errno
	}{
		"an error": {func(*testing.T, *cdevice.RecordBatch, func()) (*cdevice.RecordBatch, error) {
			return nil, errSource
		}, 0, "the source is on fire", errSource, syscall.EIO},
		"an error beside its argument": {func(_ *testing.T, b *cdevice.RecordBatch, _ func()) (*cdevice.RecordBatch, error) {
			return b, fmt.Errorf("refused: %w", arrow.ErrInvalid)
		}, 0, "refused: invalid", arrow.ErrInvalid, syscall.EINVAL},
		"an error beside another batch": {func(t *testing.T, _ *cdevice.RecordBatch, released func()) (*cdevice.RecordBatch, error) {
			return other(t, released), errSource
		}, 1, "the source is on fire", errSource, syscall.EIO},
		"io.EOF": {func(*testing.T, *cdevice.RecordBatch, func()) (*cdevice.RecordBatch, error) {
			return nil, io.EOF
		}, 0, "cdevice: read: the function of Map returned: EOF", io.ErrUnexpectedEOF, syscall.EIO},
		"nothing": {func(*testing.T, *cdevice.RecordBatch, func()) (*cdevice.RecordBatch, error) {
			return nil, nil
		}, 0, "cdevice: read: the function of Map returned nil without an error: invalid", arrow.ErrInvalid, syscall.EINVAL},
		"other types": {func(t *testing.T, _ *cdevice.RecordBatch, released func()) (*cdevice.RecordBatch, error) {
			return cdevice.NewRecordBatch(device.CPUDevice(), wider, 0, make([]cdevice.ArrayData, 1), cdevice.Lifetime{Release: released})
		}, 1, "read: RecordBatch.schema = ", arrow.ErrInvalid, syscall.EINVAL},
		"another device": {func(t *testing.T, _ *cdevice.RecordBatch, released func()) (*cdevice.RecordBatch, error) {
			return cdevice.NewRecordBatch(elsewhere{device.CPUDevice()}, emptySchema, 0, nil, cdevice.Lifetime{Release: released})
		}, 1, "cdevice: read: device_type = ext_dev, want cpu, the stream's: invalid", arrow.ErrInvalid, syscall.EINVAL},
		"a panic": {func(*testing.T, *cdevice.RecordBatch, func()) (*cdevice.RecordBatch, error) {
			panic("in a function")
		}, 0, "cdevice: panic: in a function", nil, syscall.EIO},
		"a panic of an error": {func(*testing.T, *cdevice.RecordBatch, func()) (*cdevice.RecordBatch, error) {
			panic(errSource)
		}, 0, "cdevice: panic: the source is on fire", errSource, syscall.EIO},
		"the end of its goroutine": {func(*testing.T, *cdevice.RecordBatch, func()) (*cdevice.RecordBatch, error) {
			runtime.Goexit()
			return nil, nil
		}, 0, "ended its goroutine", nil, syscall.EIO},
	} {
		for place, compose := range map[string]func(*cdevice.RecordReader, batchFunc) *cdevice.RecordReader{
			"Map": (*cdevice.RecordReader).Map,
			"below a Prefetch": func(r *cdevice.RecordReader, f batchFunc) *cdevice.RecordReader {
				return r.Map(f).Prefetch(2)
			},
			"above a Prefetch": func(r *cdevice.RecordReader, f batchFunc) *cdevice.RecordReader {
				return r.Prefetch(2).Map(f)
			},
			"between": func(r *cdevice.RecordReader, f batchFunc) *cdevice.RecordReader {
				return r.Map(same).Map(f).Map(same)
			},
		} {
			t.Run(name+", "+place, func(t *testing.T) {
				checkLeaks(t)
				var calls, made atomic.Int64
				r, released := givenBack(t, 9)
				compose(r, func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) {
					if calls.Add(1) <= 2 {
						return b, nil
					}
					return row.f(t, b, func() { made.Add(1) })
				})
				for range 2 {
					require.True(t, r.Next())
				}
				ended := make(chan bool, 1)
				go func() { // some end theirs
					ended <- true
					ended <- r.Next()
				}()
				<-ended
				within.Eventually(t, "the end", func() bool { return r.Err() != nil || len(ended) == 1 })
				assert.False(t, r.Next())
				assert.ErrorContains(t, r.Err(), row.want)
				if row.is != nil {
					assert.ErrorIs(t, r.Err(), row.is)
				}
				assert.EqualValues(t, 3, calls.Load(), "it is not called again")
				assert.Equal(t, row.makes, made.Load())
				s := garbageStream()
				require.NoError(t, cdevice.ExportRecordReader(r, s))
				assert.EqualValues(t, row.code, bridge.CallGetNext(abi.As[abi.ArrowDeviceArrayStream](s), abi.As[abi.ArrowDeviceArray](garbageArray())))
				cdevice.ReleaseStruct(s)
				closes(t, r)
				assert.LessOrEqual(t, int64(3), released.Load())
				assert.Equal(t, row.makes, made.Load())
			})
		}
	}
}

// Misuse is the error of the stream, and does no harm.
func TestFunctionThatReleasesWhatItBorrows(t *testing.T) {
	checkLeaks(t)
	for name, f := range map[string]batchFunc{
		"and gives it": func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) {
			b.Release()
			return b, nil
		},
		"and gives an error": func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) {
			b.Release()
			return nil, cdevice.ErrReleased
		},
	} {
		seen := panics(t)
		r, released := givenBack(t, 3)
		assert.False(t, r.Map(f).Next(), name)
		assert.EqualError(t, r.Err(), "cdevice: panic: cdevice: RecordBatch: Release without a Retain: the reader owns it: invalid", name)
		assert.EqualValues(t, 1, released.Load())
		assert.Zero(t, seen.Load())
	}
}

// extensionThatPanics panics when it is compared.
type extensionThatPanics struct{ arrow.ExtensionBase }

func (extensionThatPanics) ExtensionName() string                    { return "panics" }
func (extensionThatPanics) Serialize() string                        { return "" }
func (extensionThatPanics) ExtensionEquals(arrow.ExtensionType) bool { panic("compared") }
func (extensionThatPanics) ArrayType() reflect.Type                  { return nil }
func (extensionThatPanics) Deserialize(arrow.DataType, string) (arrow.ExtensionType, error) {
	return nil, arrow.ErrNotImplemented
}

func TestTypeThatPanicsWhenAMappedBatchIsChecked(t *testing.T) {
	checkLeaks(t)
	var released atomic.Int64
	open := func(s *arrow.Schema) *cdevice.RecordBatch {
		b, err := cdevice.NewRecordBatch(device.CPUDevice(), s, 0, make([]cdevice.ArrayData, 1), cdevice.Lifetime{Release: func() { released.Add(1) }})
		require.NoError(t, err)
		return b
	}
	schema := func() *arrow.Schema {
		dt := &extensionThatPanics{arrow.ExtensionBase{Storage: arrow.Null}}
		return arrow.NewSchema([]arrow.Field{{Name: "x", Type: dt}}, nil)
	}
	stream := schema()
	r, err := readerFunc(stream, device.CPU, func() (*cdevice.RecordBatch, error) { return open(stream), nil }, nil)
	require.NoError(t, err)
	r.Map(func(*cdevice.RecordBatch) (*cdevice.RecordBatch, error) { return open(schema()), nil })
	assert.False(t, r.Next())
	assert.ErrorContains(t, r.Err(), "compared")
	assert.EqualValues(t, 2, released.Load())
	r.Release()
}

// The function sees batches of the reader's schema, with all metadata, and gives them.
func TestMapHasTheSchemaOfTheReader(t *testing.T) {
	checkLeaks(t)
	md := arrow.NewMetadata([]string{"k"}, []string{"v"})
	schema := arrow.NewSchema(numberedSchema.Fields(), &md)
	r, err := cdevice.NewRecordReader(schema, device.CPU, yielding(nil, numbered(t, 3)...))
	require.NoError(t, err)
	defer r.Release()
	r.Map(func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) {
		assert.Same(t, schema, b.Schema())
		return numberedBatch(t, numberOf(t, b)+5), nil
	})
	for i := range 3 {
		require.True(t, r.Next())
		assert.Same(t, schema, r.RecordBatch().Schema())
		assert.Equal(t, i+5, numberOf(t, r.RecordBatch()))
	}
}

// A function may compose and release its own reader, which it must not ask.
func TestFunctionThatChangesItsReader(t *testing.T) {
	settles(t)
	s := newScript(t, numbered(t, 9)...)
	r, err := cdevice.ImportRecordReader(s.stream)
	require.NoError(t, err)
	r.Map(func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) {
		switch numberOf(t, b) {
		case 1:
			r.Prefetch(2).Map(digit(t, 5))
		case 6:
			r.Release()
		}
		return b, nil
	})
	var got []int
	for b, err := range r.All() {
		if err != nil {
			assert.ErrorIs(t, err, cdevice.ErrReleased)
			break
		}
		got = append(got, numberOf(t, b))
	}
	require.GreaterOrEqual(t, len(got), 2)
	assert.Equal(t, []int{0, 1, 25, 35, 45, 55, 65}[:len(got)], got)
	within.Eventually(t, "the release", func() bool { return s.releases.Load() == 1 })
}

// A consumer in C sees the results of the functions.
func TestMappedStreamInC(t *testing.T) {
	checkLeaks(t)
	calls := 0
	s := export(t, asked(t, nil, numbered(t, 5)...).Map(digit(t, 1)).Map(func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) {
		if calls++; calls == 3 {
			return nil, &cdevice.ProducerError{Callback: "get_next", Code: 71}
		}
		return b, nil
	}))
	for i := range 2 {
		b, code := next(t, s)
		require.Zero(t, code)
		assert.Equal(t, i*10+1, numberOf(t, b))
		b.Release()
	}
	for range 2 {
		_, code := next(t, s)
		assert.Equal(t, 71, code)
	}
	assert.Equal(t, 3, calls)
}
