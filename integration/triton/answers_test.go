package triton

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/interop/triton"
)

func integer(name string) *arrow.Schema {
	return arrow.NewSchema([]arrow.Field{{Name: name, Type: arrow.PrimitiveTypes.Int64}}, nil)
}

// The server's errors end a request: the same outputs are of the next one at once.
func TestAnswers(t *testing.T) {
	inEachMemory(t, func(t *testing.T, p place) {
		s := p.connect(t)
		in := s.input("in", p.upload(t, integer("a"), `[1,2,3]`))
		in32 := s.input("in32", p.upload(t, arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int32}}, nil), `[1,2,3]`))
		other := s.input("other", p.upload(t, integer("zz"), `[1,2,3]`))
		wide := s.input("wide", p.upload(t, arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int64)}}, nil), `[[1,2],[3,4]]`))
		absent, err := p.region(bounded(t), "absent", p.upload(t, integer("a"), `[1,2,3]`))
		require.NoError(t, err)
		defer absent.Close()
		out, small, unknown := s.results("out", integer("a"), 3), s.results("small", integer("a"), 2), s.results("unknown", integer("zz"), 3)
		one := func(r *triton.Region) []*triton.Region { return []*triton.Region{r} }
		to := func(o *triton.Outputs) []*triton.Outputs { return []*triton.Outputs{o} }
		for want, c := range map[string]struct {
			code    codes.Code
			request triton.Request
		}{
			"the model failed": {codes.Internal, triton.Request{Model: "fail", Inputs: one(in), Outputs: to(out)}},
			"shared memory size specified with the request for output 'a' (16 bytes) should be at least 24 bytes": {codes.Internal, triton.Request{Model: "next", Inputs: one(in), Outputs: to(small)}},
			"Request for unknown model: 'none' is not found":                                                      {codes.NotFound, triton.Request{Model: "none", Inputs: one(in), Outputs: to(out)}},
			"'next' version 7 is not found":                                                                       {codes.NotFound, triton.Request{Model: "next", Version: "7", Inputs: one(in), Outputs: to(out)}},
			"failed to get model version from specified version string 'x'":                                       {codes.InvalidArgument, triton.Request{Model: "next", Version: "x", Inputs: one(in), Outputs: to(out)}},
			"data-type is 'INT32', but model 'next' expects 'INT64'":                                              {codes.InvalidArgument, triton.Request{Model: "next", Inputs: one(in32), Outputs: to(out)}},
			"unexpected shape for input 'a' for model 'next'. Expected [-1], got [2,2]":                           {codes.InvalidArgument, triton.Request{Model: "next", Inputs: one(wide), Outputs: to(out)}},
			"unexpected inference output 'zz' for model 'next'":                                                   {codes.InvalidArgument, triton.Request{Model: "next", Inputs: one(in), Outputs: to(unknown)}},
			"unexpected inference input 'zz' for model 'next'":                                                    {codes.InvalidArgument, triton.Request{Model: "next", Inputs: one(other), Outputs: to(out)}},
			"expected 2 inputs but got 1 inputs for model 'vectors'. Got input(s) ['a'], ":                        {codes.InvalidArgument, triton.Request{Model: "vectors", Inputs: one(in), Outputs: to(out)}},
		} {
			for range 2 { // of the same outputs
				_, err := s.Infer(bounded(t), &c.request)
				assert.ErrorContains(t, err, want)
				assert.Equal(t, c.code, status.Code(err), "%v", err)
			}
			got, err := s.infer("next", out, in)
			require.NoError(t, err)
			check(t, got, `[2,3,4]`)
		}
		client := s.unregistered(absent, out.Region())
		for range 2 {
			_, err := client.Infer(bounded(t), &triton.Request{Model: "next", Inputs: one(absent), Outputs: to(out)})
			assert.ErrorContains(t, err, "Unable to find shared memory region: 'absent'")
			assert.Equal(t, codes.NotFound, status.Code(err))
		}
		assert.Equal(t, codes.AlreadyExists, status.Code(s.Register(bounded(t), in)))
		assert.ErrorContains(t, s.Register(bounded(t), in), `triton: register region "in": `)
		got, err := s.infer("next", out, in)
		require.NoError(t, err, "the first Register counts")
		check(t, got, `[2,3,4]`)
	})
}

// Without outputs in a request, the response has them all.
func TestWithoutOutputs(t *testing.T) {
	inEachMemory(t, func(t *testing.T, p place) {
		s := p.connect(t)
		in := s.input("in", p.upload(t, pair, `[1,2,3]`, `[0.5,1.5,2.5]`))
		response, err := s.Infer(bounded(t), &triton.Request{Model: "next", Inputs: []*triton.Region{in}})
		require.NoError(t, err)
		assert.Len(t, response.Outputs, 4)
		contents, err := binary.Append(nil, binary.LittleEndian, []int64{2, 3, 4})
		require.NoError(t, err)
		assert.Contains(t, response.Outputs, triton.OutputTensor{Name: "a", Datatype: "INT64", Shape: []int64{3}, Contents: contents})
	})
}

// Requests of several goroutines get their own results.
func TestManyRequests(t *testing.T) {
	inEachMemory(t, func(t *testing.T, p place) {
		s := p.connect(t)
		const goroutines, requests = 8, 100
		var group sync.WaitGroup
		for g := range goroutines {
			in := s.input(fmt.Sprint("in", g), p.upload(t, pair, fmt.Sprintf(`[%d,2,3]`, g), `[0.5,1.5,2.5]`))
			out := s.results(fmt.Sprint("out", g), pair, 3)
			group.Go(func() {
				for range requests {
					got, err := s.infer("next", out, in)
					if !assert.NoError(t, err) {
						return
					}
					check(t, got, fmt.Sprintf(`[%d,3,4]`, g+1), `[1.5,2.5,3.5]`)
				}
			})
		}
		group.Wait()
	})
}

// Each deadline is the context's error, whether the server, gRPC or the context reports it first.
func TestDeadlines(t *testing.T) {
	inEachMemory(t, func(t *testing.T, p place) {
		s := p.connect(t)
		in := s.input("in", p.upload(t, integer("a"), `[1,2,3]`))
		var group sync.WaitGroup
		var mu sync.Mutex
		ended, ahead := 0, 0
		for g := range 4 {
			group.Go(func() {
				for i := range 50 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+(i+g)%10)*time.Millisecond)
					_, err := s.Infer(ctx, &triton.Request{Model: "slow", Inputs: []*triton.Region{in}})
					mu.Lock()
					if err != nil {
						assert.ErrorIs(t, err, context.DeadlineExceeded)
						assert.False(t, errors.Is(err, context.Canceled), "%v", err)
						ended++
						if ctx.Err() == nil {
							ahead++
						}
					}
					mu.Unlock()
					cancel()
				}
			})
		}
		group.Wait()
		assert.NotZero(t, ended)
		t.Logf("%d deadlines of 200 requests, %d seen before the context ended", ended, ahead)
	})
}

// Two servers have the same regions open.
func TestTwoServers(t *testing.T) {
	inEachMemory(t, func(t *testing.T, p place) {
		s := p.connect(t)
		in := s.input("in", p.upload(t, integer("a"), `[1,2,3]`))
		out := s.results("out", integer("a"), 3)
		second := p.connectTo(t, own(t, []string{"next"}))
		for _, r := range []*triton.Region{in, out.Region()} {
			require.NoError(t, second.Register(bounded(t), r))
		}
		for range 3 {
			for _, server := range []*session{s, second} {
				got, err := server.infer("next", out, in)
				require.NoError(t, err)
				check(t, got, `[2,3,4]`)
			}
		}
		for _, r := range []*triton.Region{in, out.Region()} {
			require.NoError(t, second.Unregister(bounded(t), r))
		}
		_, err := second.infer("next", out, in)
		assert.ErrorContains(t, err, "not registered with this client")
		got, err := s.infer("next", out, in)
		require.NoError(t, err)
		check(t, got, `[2,3,4]`)
	})
}
