package triton_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/protofield"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/interop/triton"
)

// fake is a connection whose other side is functions of the test; integration/triton has a server in another
// process.
type fake struct {
	mu     sync.Mutex
	calls  []string
	answer map[string]func(ctx context.Context, message []byte) ([]byte, error) // by method; no function: an empty message
}

func newFake() *fake {
	return &fake{answer: map[string]func(context.Context, []byte) ([]byte, error){}}
}

func (f *fake) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) (err error) {
	method = method[len("/inference.GRPCInferenceService/"):]
	f.mu.Lock()
	f.calls = append(f.calls, method)
	answer := f.answer[method]
	f.mu.Unlock()
	if answer != nil {
		*reply.(*[]byte), err = answer(ctx, args.([]byte))
	}
	return err
}

func (f *fake) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("no streams")
}

func (f *fake) count(method string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, called := range f.calls {
		if called == method {
			n++
		}
	}
	return n
}

// listing is a CudaSharedMemoryStatusResponse.
func listing(name string) []byte {
	return protofield.AppendMessage(nil, 1, protofield.AppendBytes(nil, 1, name))
}

func setUp(t *testing.T) (*cudatest.Machine, *fake, *triton.Client, *triton.Region) {
	t.Helper()
	m := cudatest.Simulated(t, cudasim.Options{})
	f := newFake()
	c, err := triton.NewClient(f)
	require.NoError(t, err)
	r := regionOf(t, "r", upload(t, m.GPUs[0].Shareable(), numbers, numbersRows))
	require.NoError(t, c.Register(background, r))
	f.calls = nil
	return m, f, c, r
}

// Unregister returns when the server does not list the region: with an empty answer, or as one that it does not find.
func TestUnregisterWaitsForTheServer(t *testing.T) {
	for name, gone := range map[string]func() ([]byte, error){
		"not found": func() ([]byte, error) { return nil, status.Error(codes.NotFound, "r") },
		"others":    func() ([]byte, error) { return listing("other"), nil },
	} {
		t.Run(name, func(t *testing.T) {
			cdevicetest.CheckLeaks(t)
			_, f, c, r := setUp(t)
			asked := 0
			f.answer["CudaSharedMemoryStatus"] = func(context.Context, []byte) ([]byte, error) {
				if asked++; asked <= 3 {
					return listing("r"), nil
				}
				return gone()
			}
			require.NoError(t, c.Unregister(background, r))
			assert.Equal(t, []string{"CudaSharedMemoryStatus", "CudaSharedMemoryUnregister", "CudaSharedMemoryStatus", "CudaSharedMemoryStatus", "CudaSharedMemoryStatus"}, f.calls)
		})
	}
}

func TestUnregisterFails(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	_, f, c, r := setUp(t)
	broken := status.Error(codes.Unavailable, "gone")
	f.answer["CudaSharedMemoryStatus"] = func(context.Context, []byte) ([]byte, error) { return listing("r"), nil }
	within.Context(t, "Unregister", func(ctx context.Context) error { return c.Unregister(ctx, r) })
	f.answer["CudaSharedMemoryStatus"] = func(context.Context, []byte) ([]byte, error) { return nil, broken }
	assert.Equal(t, broken, c.Unregister(background, r))
	f.answer["CudaSharedMemoryStatus"] = func(context.Context, []byte) ([]byte, error) { return []byte{0xff}, nil }
	assert.ErrorContains(t, c.Unregister(background, r), "CudaSharedMemoryStatusResponse = ")
	f.answer["CudaSharedMemoryStatus"] = nil
	f.answer["CudaSharedMemoryUnregister"] = func(context.Context, []byte) ([]byte, error) { return nil, broken }
	assert.Equal(t, broken, c.Unregister(background, r))
}

// A connection that is not gRPC-Go's has no trailers: then the codes that gRPC does not make itself end a request.
func TestOutputsAfterErrors(t *testing.T) {
	for code, known := range map[codes.Code]bool{
		codes.InvalidArgument: true, codes.NotFound: true,
		codes.Internal: false, codes.Unavailable: false, codes.Canceled: false, codes.DeadlineExceeded: false, codes.Unknown: false,
	} {
		t.Run(code.String(), func(t *testing.T) {
			cdevicetest.CheckLeaks(t)
			m, f, c, r := setUp(t)
			o := outputsOf(t, m, "o", numbers, 3)
			register(t, c, o.Region())
			request := &triton.Request{Model: "m", Inputs: []*triton.Region{r}, Outputs: []*triton.Outputs{o}}
			f.answer["ModelInfer"] = func(context.Context, []byte) ([]byte, error) { return nil, status.Error(code, "no") }
			_, err := c.Infer(background, request)
			assert.Equal(t, code, status.Code(err))
			f.answer["ModelInfer"] = nil
			_, err = c.Infer(background, request)
			if known {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, `Request.Outputs("o") = perhaps still written to`)
			require.NoError(t, c.Unregister(background, o.Region()))
			register(t, c, o.Region())
			_, err = c.Infer(background, request)
			assert.NoError(t, err)
		})
	}
}

// Triton up to 24.11 refuses to unregister a region that requests use, and Unregister asks again.
func TestUnregisterAsksAgain(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	_, f, c, r := setUp(t)
	refuse := func(context.Context, []byte) ([]byte, error) {
		return nil, status.Error(codes.Internal, "Cannot unregister shared memory region 'r', it is currently in use.")
	}
	f.answer["CudaSharedMemoryUnregister"] = refuse
	within.Context(t, "Unregister", func(ctx context.Context) error { return c.Unregister(ctx, r) })
	_, err := c.Infer(background, &triton.Request{Model: "m", Inputs: []*triton.Region{r}})
	require.NoError(t, err, "it is still registered")
	asked := 0
	f.answer["CudaSharedMemoryUnregister"] = func(ctx context.Context, message []byte) ([]byte, error) {
		if asked++; asked <= 3 {
			return refuse(ctx, message)
		}
		return nil, nil
	}
	require.NoError(t, c.Unregister(background, r))
	assert.Equal(t, 4, asked)
	require.NoError(t, c.Register(background, r))
	broken := status.Error(codes.Internal, "unable to munmap shared memory region")
	f.answer["CudaSharedMemoryUnregister"] = func(context.Context, []byte) ([]byte, error) { return nil, broken }
	assert.Equal(t, broken, c.Unregister(background, r))
}

func TestRegisterFails(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	_, f, c, r := setUp(t)
	for code, want := range map[codes.Code]string{
		codes.AlreadyExists: `triton: register region "r": rpc error: code = AlreadyExists desc = no: want a name that is not registered: Unregister of the region that has it, or UnregisterName where an earlier process has left it`,
		codes.Unimplemented: `triton: register region "r": rpc error: code = Unimplemented desc = no: want a Triton that serves shared memory of clients, from 26.04 on with the flag --allow-client-shm=true`,
	} {
		f.answer["CudaSharedMemoryRegister"] = func(context.Context, []byte) ([]byte, error) { return nil, status.Error(code, "no") }
		err := c.Register(background, r)
		assert.EqualError(t, err, want)
		assert.Equal(t, code, status.Code(err))
	}
}

// The server may see a deadline before the context has ended here.
func TestErrorsOfTheContextFromTheServer(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	_, f, c, r := setUp(t)
	for code, want := range map[codes.Code]error{codes.DeadlineExceeded: context.DeadlineExceeded, codes.Canceled: context.Canceled} {
		f.answer["CudaSharedMemoryRegister"] = func(context.Context, []byte) ([]byte, error) { return nil, status.Error(code, "no") }
		err := c.Register(background, r)
		assert.ErrorIs(t, err, want)
		assert.Equal(t, code, status.Code(err))
	}
}

// Outputs are of one request at a time; inputs may be of several. Regions that are closed meanwhile are kept.
func TestRequestsAtTheSameTime(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m, f, c, r := setUp(t)
	o := outputsOf(t, m, "o", numbers, 3)
	register(t, c, o.Region())
	entered, open := make(chan bool, 2), make(chan bool)
	f.answer["ModelInfer"] = func(context.Context, []byte) ([]byte, error) { entered <- true; <-open; return nil, nil }
	results := make(chan error, 2)
	for _, outputs := range [][]*triton.Outputs{{o}, nil} {
		go func() {
			_, err := c.Infer(background, &triton.Request{Model: "m", Inputs: []*triton.Region{r}, Outputs: outputs})
			results <- err
		}()
		<-entered
	}
	_, err := c.Infer(background, &triton.Request{Model: "m", Inputs: []*triton.Region{r}, Outputs: []*triton.Outputs{o}})
	assert.ErrorContains(t, err, `Request.Outputs("o") = in use by another request`)
	r.Close()
	_, err = c.Infer(background, &triton.Request{Model: "m", Inputs: []*triton.Region{r}})
	assert.ErrorIs(t, err, cdevice.ErrReleased)
	assert.ErrorIs(t, c.Register(background, r), cdevice.ErrReleased)
	assert.Equal(t, 2, f.count("ModelInfer"))
	within.Context(t, "Unregister", func(ctx context.Context) error { return c.Unregister(ctx, r) })
	assert.Zero(t, f.count("CudaSharedMemoryUnregister"), "two requests have it")
	unregistered := make(chan error, 1)
	go func() { unregistered <- c.Unregister(background, r) }()
	within.Eventually(t, "requests are refused", func() bool {
		_, err := c.Infer(background, &triton.Request{Model: "m", Inputs: []*triton.Region{r}})
		return err != nil && strings.Contains(err.Error(), `Region("r") = being unregistered`)
	})
	assert.Zero(t, f.count("CudaSharedMemoryUnregister"), "two requests have it")
	close(open)
	for _, done := range []chan error{results, results, unregistered} {
		within.Seconds(t, "the end", func() error { return <-done })
	}
}

// A request waits until batches of its outputs are released, or its context ends; then it has the outputs alone.
func TestRequestsWaitForBatches(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m, f, c, r := setUp(t)
	o := outputsOf(t, m, "o", numbers, 3)
	register(t, c, o.Region())
	request := &triton.Request{Model: "m", Inputs: []*triton.Region{r}, Outputs: []*triton.Outputs{o}}
	answer := &triton.Response{}
	for _, tensor := range o.Region().Tensors() {
		answer.Outputs = append(answer.Outputs, triton.OutputTensor{Name: tensor.Name, Datatype: tensor.Datatype, Shape: tensor.Shape})
	}
	first, err := o.Batch(answer)
	require.NoError(t, err)
	second, err := o.Batch(answer)
	require.NoError(t, err)
	within.Context(t, "Infer", func(ctx context.Context) error { _, err := c.Infer(ctx, request); return err })
	entered, open, ended := make(chan bool, 1), make(chan bool), make(chan error, 1)
	f.answer["ModelInfer"] = func(context.Context, []byte) ([]byte, error) { entered <- true; <-open; return nil, nil }
	waiting := make(chan bool)
	go func() {
		close(waiting)
		_, err := c.Infer(background, request)
		ended <- err
	}()
	<-waiting
	first.Release()
	within.Context(t, "Infer", func(ctx context.Context) error { _, err := c.Infer(ctx, request); return err })
	assert.Zero(t, f.count("ModelInfer"), "a batch is in use")
	second.Release()
	<-entered
	_, err = c.Infer(background, request)
	assert.ErrorContains(t, err, `Request.Outputs("o") = in use by another request`)
	close(open)
	within.Seconds(t, "the end", func() error { return <-ended })
}

// A connection that panics holds nothing afterwards.
func TestConnectionPanics(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m, f, c, r := setUp(t)
	o := outputsOf(t, m, "o", numbers, 3)
	register(t, c, o.Region())
	f.answer["ModelInfer"] = func(context.Context, []byte) ([]byte, error) { panic("interceptor") }
	assert.PanicsWithValue(t, "interceptor", func() {
		_, _ = c.Infer(background, &triton.Request{Model: "m", Inputs: []*triton.Region{r}, Outputs: []*triton.Outputs{o}})
	})
	within.Seconds(t, "Unregister", func() error { return errors.Join(c.Unregister(background, r), c.Unregister(background, o.Region())) })
}

func TestRequestRefuses(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m, f, c, r := setUp(t)
	batch := upload(t, m.GPUs[0].Shareable(), numbers, numbersRows)
	twin, other := regionOf(t, "r", batch), regionOf(t, "other", batch)
	o := outputsOf(t, m, "o", numbers, 3)
	clash := outputsOf(t, m, "r", schemaOf(field("z", integers)), 3)
	in := func(regions ...*triton.Region) []*triton.Region { return regions }
	out := func(outputs ...*triton.Outputs) []*triton.Outputs { return outputs }
	for want, request := range map[string]*triton.Request{
		`Request.Model.name = "", want a name`:                               {Inputs: in(r)},
		`Request.Version = "\xff", want UTF-8`:                               {Model: "m", Version: "\xff", Inputs: in(r)},
		`Request.ID = "\xff", want UTF-8`:                                    {Model: "m", ID: "\xff", Inputs: in(r)},
		`Request.Inputs = 0, want at least one region`:                       {Model: "m"},
		`Request.Inputs = nil, want regions`:                                 {Model: "m", Inputs: in(r, nil)},
		`Request.Outputs = nil, want outputs`:                                {Model: "m", Inputs: in(r), Outputs: out(nil)},
		`Request.Outputs = nil, want outputs of NewOutputs`:                  {Model: "m", Inputs: in(r), Outputs: out(new(triton.Outputs))},
		`Request.Region.Name = "r", want a name that no other region`:        {Model: "m", Inputs: in(r, twin)},
		`Request.Inputs.columns["a"].name = "a", want a name that no`:        {Model: "m", Inputs: in(r, other)},
		`Request.Outputs.columns["a"].name = "a", want a name that`:          {Model: "m", Inputs: in(r), Outputs: out(o, o)},
		`Request.Region.Name = "r", want a name that no other region of the`: {Model: "m", Inputs: in(r), Outputs: out(clash)},
	} {
		_, err := c.Infer(background, request)
		assert.ErrorContains(t, err, "triton: infer: "+want)
		assert.ErrorIs(t, err, arrow.ErrInvalid)
	}
	assert.False(t, slices.Contains(f.calls, "ModelInfer"))
}
