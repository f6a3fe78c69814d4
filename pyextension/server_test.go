//go:build cgo && unix

package pyextension

import (
	"context"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/handle"
)

func TestValuesAreTheSameThereAndBack(t *testing.T) {
	register(t, "echo", func(v any) any { return v })
	for _, v := range []any{
		nil, true, false, int64(-5), 2.5, "ü\x00", []byte{0, 255}, []any{}, []any{int64(1), nil, []any{"a"}},
		dict{{"a", int64(1)}, {"b", dict{{"c", nil}}}},
	} {
		assert.Equal(t, v, ask(t, "echo", v).value)
	}
}

func TestScalars(t *testing.T) {
	register(t, "f", func(s string, b []byte, n int8, u uint16, f float32, ok bool, l []int64, m map[string]float64, p *int) []any {
		at := any(nil)
		if p != nil {
			at = *p
		}
		return []any{s, b, n, u, f, ok, l, m, at}
	}, WithParams("s", "b", "n", "u", "f", "ok", "l", "m", "p"))
	args := []any{"x", []byte("y"), int64(-3), int64(9), 1.5, true, []any{int64(4)}, dict{{"k", 2.0}}, nil}
	assert.Equal(t, args, ask(t, "f", args...).value)
	args[8] = int64(7)
	assert.Equal(t, args, ask(t, "f", args...).value)
	args[4], args[7] = int64(1), dict{{"k", int64(2)}}
	want := append([]any{}, args...)
	want[4], want[7] = 1.0, dict{{"k", 2.0}}
	assert.Equal(t, want, ask(t, "f", args...).value, "an int is a float where a float is wanted")

	for i, bad := range map[int]struct {
		value      any
		kind, text string
	}{
		0: {int64(1), "TypeError", "f: argument s: str is wanted, not int"},
		1: {"x", "TypeError", "f: argument b: bytes is wanted, not str"},
		2: {int64(128), "OverflowError", "f: argument n: 128 does not fit into int8"},
		3: {int64(-1), "OverflowError", "f: argument u: -1 does not fit into uint16"},
		4: {"x", "TypeError", "f: argument f: float is wanted, not str"},
		5: {int64(1), "TypeError", "f: argument ok: bool is wanted, not int"},
		6: {[]any{int64(1), "x"}, "TypeError", "f: argument l: element 1: int is wanted, not str"},
		7: {dict{{"k", nil}}, "TypeError", `f: argument m: key "k": float is wanted, not None`},
		8: {true, "TypeError", "f: argument p: int is wanted, not bool"},
		9: {1e308, "OverflowError", "f: argument f: 1e+308 does not fit into float32"},
	} {
		if i == 9 {
			i = 4
		}
		changed := append([]any{}, args...)
		changed[i] = bad.value
		got := ask(t, "f", changed...)
		assert.Equal(t, bad.kind, got.kind)
		assert.Equal(t, bad.text, got.text)
	}
}

func TestBatches(t *testing.T) {
	nothingIsLeft(t)
	register(t, "same", func(b *cdevice.RecordBatch) *cdevice.RecordBatch { return b })
	register(t, "half", func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) { return b.Slice(0, b.NumRows()/2) })
	register(t, "rows", func(b arrow.RecordBatch) int64 { return b.NumRows() })
	register(t, "host", func(b arrow.RecordBatch) arrow.RecordBatch { return b })
	register(t, "stream", func(r *cdevice.RecordReader) *cdevice.RecordReader { return r })
	register(t, "pair", func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, int) { return b, 5 })

	same := ask(t, "same", exported(t, 1, 2, 3, 4)).value.(replied)
	assert.Equal(t, byte(kindBatch), same.kind)
	assert.EqualValues(t, 4, same.rows)
	half := ask(t, "half", own1(same.handle)).value.(replied)
	assert.EqualValues(t, 2, half.rows)
	assert.Equal(t, int64(2), ask(t, "rows", own1(half.handle)).value)
	host := ask(t, "host", own1(half.handle)).value.(replied)
	assert.EqualValues(t, 2, host.rows)
	stream := ask(t, "stream", own1(same.handle)).value.(replied)
	assert.Equal(t, byte(kindReader), stream.kind)
	next := ask(t, ".next", own1(stream.handle)).value.(replied)
	assert.EqualValues(t, 4, next.rows)
	assert.Nil(t, ask(t, ".next", own1(stream.handle)).value)
	for _, o := range []replied{same, half, host, stream, next} {
		server{}.Release(o.handle)
		server{}.Release(o.handle)
	}
	gone := ask(t, "same", own1(same.handle))
	assert.Equal(t, "ValueError", gone.kind)
	assert.Contains(t, gone.text, "same: argument batch: ")
	assert.Contains(t, gone.text, "closed")
}

// A call moves the structs out and releases their contents, also if it fails.
func TestArgumentsAreTakenInEveryCase(t *testing.T) {
	nothingIsLeft(t)
	register(t, "two", func(*cdevice.RecordBatch, string) {}, WithParams("batch", "text"))
	for _, args := range [][]any{{int64(1)}, {}, {"x", "y"}} {
		batch := exported(t, 1)
		assert.NotEmpty(t, ask(t, "two", append([]any{batch}, args...)...).kind)
		again := ask(t, "two", batch, "x")
		assert.Equal(t, "ValueError", again.kind)
		assert.Contains(t, again.text, "two: argument batch: ")
		assert.Contains(t, again.text, "consumed or released before")
	}
	assert.NotEmpty(t, ask(t, "unknown", exported(t, 1)).kind)
	short := request(t, "two", exported(t, 1), "x")
	_, data := callInMain(short[:len(short)-1], time.Minute)
	assert.NotEmpty(t, decodeReply(t, data).kind)
}

func TestColumnForATable(t *testing.T) {
	nothingIsLeft(t)
	register(t, "rows", func(b *cdevice.RecordBatch) int64 { return b.NumRows() })
	register(t, "count", func(*cdevice.RecordReader) {})
	for _, name := range []string{"rows", "count"} {
		b := array.NewInt64Builder(memory.DefaultAllocator)
		a, err := wrappedArray(b.NewArray())
		b.Release()
		require.NoError(t, err)
		got := ask(t, name, exportedArray(t, a))
		a.Release()
		assert.Equal(t, "TypeError", got.kind)
		assert.Contains(t, got.text, `a column is no table or record batch (its format is "l")`)
	}
}

func TestErrors(t *testing.T) {
	register(t, "fails", func(n int) error {
		return []error{
			arrow.ErrInvalid, arrow.ErrType, arrow.ErrNotImplemented, arrow.ErrIndex, arrow.ErrKey, os.ErrNotExist, os.ErrPermission,
			context.DeadlineExceeded, errors.New("x"), nil,
		}[n]
	}, WithParams("n"))
	for i, kind := range []string{
		"ValueError", "TypeError", "NotImplementedError", "IndexError", "KeyError", "FileNotFoundError", "PermissionError", "TimeoutError", "Error", "",
	} {
		assert.Equal(t, kind, ask(t, "fails", int64(i)).kind)
	}
	register(t, "panics", func() { panic("boom") })
	got := ask(t, "panics")
	assert.Equal(t, "Panic", got.kind)
	assert.Contains(t, got.text, "panics: panic: boom\n")
	assert.Contains(t, got.text, "server_test.go")
	register(t, "exits", func(context.Context) { runtime.Goexit() })
	assert.Contains(t, ask(t, "exits").text, "runtime.Goexit")
}

func TestResultThatContainsItself(t *testing.T) {
	register(t, "cycle", func() any {
		c := []any{nil}
		c[0] = c
		return c
	})
	got := ask(t, "cycle")
	assert.Equal(t, "ValueError", got.kind)
	assert.Contains(t, got.text, "contains itself")
}

// Code of a stream that ends its goroutine ends the stream, and nothing waits for it.
func TestGoexitInAStream(t *testing.T) {
	nothingIsLeft(t)
	registerStream(t, "exits", func(context.Context, int) (int64, error) {
		runtime.Goexit()
		return 0, nil
	})
	for _, method := range []string{".next", ".read_all"} {
		stream := ask(t, "exits", exported(t, 1)).value.(replied)
		assert.Contains(t, ask(t, method, own1(stream.handle)).text, "runtime.Goexit")
		server{}.Release(stream.handle)
	}
}

// Arrow-go cannot make every type of nulls; a table without batches has an array of any type.
func TestEmptyColumns(t *testing.T) {
	nothingIsLeft(t)
	for _, dt := range []arrow.DataType{arrow.Null, arrow.BinaryTypes.String, arrow.StructOf(), arrow.FixedWidthTypes.Boolean} {
		r, err := cdevice.NewArrayReader(arrow.Field{Type: dt}, device.CPU, func(func(*cdevice.Array, error) bool) {})
		require.NoError(t, err)
		a, err := collectArrays(t.Context(), r)
		require.NoError(t, err, dt)
		assert.Zero(t, a.Len())
		a.Release()
		r.Release()
	}
}

// Python's object of a batch that a function has released too often does not end the process.
func TestReleaseOfAResult(t *testing.T) {
	register(t, "same", func(b *cdevice.RecordBatch) *cdevice.RecordBatch { return b })
	o := ask(t, "same", exported(t, 1)).value.(replied)
	held, err := use(handle.Word(o.handle))
	require.NoError(t, err)
	held.batch.Release()
	held.drop()
	assert.NotPanics(t, func() { server{}.Release(o.handle) })
}

// A function that releases a borrowed argument gets an exception, and the process goes on.
func TestReleaseOfABorrowedArgument(t *testing.T) {
	register(t, "releases", func(b *cdevice.RecordBatch) { b.Release() })
	got := ask(t, "releases", exported(t, 1))
	assert.Equal(t, "Panic", got.kind)
	assert.Contains(t, got.text, "released that is borrowed")
}

func TestRegistration(t *testing.T) {
	for name, bad := range map[string]struct {
		name string
		f    any
		opts []Option
		text string
	}{
		"no function":     {"f", 5, nil, "not a function"},
		"nil":             {"f", (func())(nil), nil, "not a function"},
		"name":            {"a-b", func() {}, nil, "name"},
		"keyword":         {"class", func() {}, nil, "name"},
		"private":         {"_f", func() {}, nil, "name"},
		"type":            {"f", func(chan int) {}, nil, "parameter 0: type chan int is not supported"},
		"nested type":     {"f", func([]struct{}) {}, nil, "type struct {} is not supported"},
		"asynchronous":    {"f", func(int, *cdevice.AsyncStream) {}, nil, "parameter 1: type *cdevice.AsyncStream is a result only"},
		"some of these":   {"f", func(map[string][]*cdevice.AsyncStream) {}, nil, "parameter 0: type map[string][]*cdevice.AsyncStream is a result only"},
		"result":          {"f", func() complex128 { return 0 }, nil, "result 0: type complex128"},
		"variadic":        {"f", func(...int) {}, nil, "slice"},
		"params":          {"f", func(int) {}, []Option{WithParams("a", "b")}, "2 names for 1"},
		"param twice":     {"f", func(int, int) {}, []Option{WithParams("a", "a")}, "twice"},
		"default":         {"f", func(int) {}, []Option{WithDefault("b", 1)}, `no parameter "b"`},
		"default between": {"f", func(int, int) {}, []Option{WithParams("a", "b"), WithDefault("a", 1)}, "parameter b has no default"},
		"default too big": {"f", func(int8) {}, []Option{WithDefault("arg", 300)}, "the value of arg: 300 does not fit into int8"},
		"default's type":  {"f", func([]int) {}, []Option{WithDefault("arg", "q")}, "the value of arg: list is wanted, not str"},
		"default nil":     {"f", func(int8) {}, []Option{WithDefault("arg", nil)}, "the value of arg: int is wanted, not None"},
		"nil option":      {"f", func(int) {}, []Option{nil}, "option"},
	} {
		t.Run(name, func(t *testing.T) {
			Func(bad.name, bad.f, bad.opts...)
			assert.ErrorContains(t, Check(), bad.text)
			assert.Equal(t, "ImportError", ask(t, ".functions").kind)
			functions.failed = nil
		})
	}
}

func TestDescription(t *testing.T) {
	register(t, "f", func(context.Context, *cdevice.RecordReader, *cdevice.RecordReader, string, *int, map[string][]float64) (arrow.RecordBatch, []byte, error) {
		return nil, nil, nil
	}, WithDoc("Says nothing."))
	register(t, "g", func(a, b string) {}, WithParams("a", "b"), WithDefault("b", "km"))
	all := ask(t, ".functions").value.([]any)
	param := func(name, python string) dict { return dict{{"name", name}, {"type", python}} }
	assert.Equal(t, dict{
		{"name", "f"}, {"doc", "Says nothing."},
		{"params", []any{
			param("stream1", "RecordReader"), param("stream2", "RecordReader"),
			param("arg1", "str"), param("arg2", "int | None"), param("arg3", "dict[str, list[float]]"),
		}},
		{"returns", "tuple[RecordBatch, bytes]"},
	}, all[0])
	assert.Equal(t, []any{param("a", "str"), append(param("b", "str"), item{"default", "km"})}, all[1].(dict).get("params"))
}

func FuzzRequests(f *testing.F) {
	f.Add([]byte("L\x02\x00\x00\x00S\x04\x00\x00\x00echoI12345678"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for i, b := range data {
			if b == wireArrow { // addresses of nothing
				data[i] = wireNone
			}
		}
		if number, _ := callInMain(data, time.Minute); number != 0 {
			t.Error("it does not end")
		}
	})
}

// A nil slice or map is an empty one to Go, and to the stubs of the module.
func TestNilSlicesAreEmpty(t *testing.T) {
	nothingIsLeft(t)
	register(t, "none", func() ([]string, map[string]int64, []byte) { return nil, nil, nil })
	assert.Equal(t, []any{[]any{}, dict{}, []byte{}}, ask(t, "none").value)
}
