package triton

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// A Client registers regions with a server and sends requests, which use regions that the same client has registered: a program has one
// for each server. It may be used from any goroutine, and needs no Close: the connection is the caller's. Its calls end when their
// context does; an error of the server is one of gRPC, whose code status.Code returns. Those with the codes Canceled and
// DeadlineExceeded are also context.Canceled and context.DeadlineExceeded for errors.Is.
type Client struct {
	conn grpc.ClientConnInterface

	mu         sync.Mutex
	usages     map[*Region]*usage // of regions in flight, or being unregistered
	registered registrations
	turns      map[string]*turn // by name
}

// NewClient returns a client over a connection, such as a *grpc.ClientConn, which it borrows.
func NewClient(conn grpc.ClientConnInterface) (*Client, error) {
	if argument.IsNil(conn) {
		return nil, argument.Nil("triton: NewClient", "conn", "a connection")
	}
	return &Client{conn: conn, usages: map[*Region]*usage{}, registered: registrations{}, turns: map[string]*turn{}}, nil
}

// Register makes the server open a region. Requests of this client may use it once Register has returned nil, until Unregister: a
// region that this client has not registered is an error of Infer, since its name may be that of other memory.
//
// If ctx or the connection ends first, the server may open the region nevertheless: Unregister it before Close, as after success, and
// before another Register. Triton refuses a name that is already registered, by this process or another one, with
// codes.AlreadyExists; [Client.UnregisterName] frees one that an earlier process has left. Register, Unregister and UnregisterName of one
// name wait for each other, until ctx ends.
func (c *Client) Register(ctx context.Context, r *Region) error {
	if err := checkCall("triton: Register", ctx, r); err != nil {
		return err
	}
	done, err := c.takeTurn(ctx, r.name)
	if err != nil {
		return fmt.Errorf("triton: register region %s: %w", quoted(r.name), err)
	}
	defer done()
	if err := r.hold(); err != nil {
		return err
	}
	defer r.drop()                    // mutant: deleted
	if err := ctx.Err(); err != nil { // mutant: never
		return fmt.Errorf("triton: register region %s: %w", quoted(r.name), err)
	}
	registered, refused := false, false
	defer func() { c.noteRegister(ctx, r, registered, refused) }()
	var trailer metadata.MD
	_, err = c.invoke(ctx, r.kind().method("Register"), registerMessage(r), grpc.Trailer(&trailer))
	registered, refused = err == nil, err != nil && requestEnded(err, trailer)
	if err != nil {
		return fmt.Errorf("triton: register region %s: %w", quoted(r.name), withRemedy(err))
	}
	return nil
}

// withRemedy adds what to do to an error of the server about a region.
func withRemedy(err error) error {
	switch status.Code(err) {
	case codes.AlreadyExists:
		const want = "a name that is not registered: Unregister of the region that has it, or UnregisterName where an earlier process has left it"
		return fmt.Errorf("%w: want %s", err, want)
	case codes.Unimplemented:
		return fmt.Errorf("%w: want a Triton that serves shared memory of clients, from 26.04 on with the flag --allow-client-shm=true", err)
	}
	return err
}

// Infer sends a request and waits for its response. It first waits for all batches obtained from r.Outputs to be released; use
// a context with a deadline to bound the wait. It retains the regions until it returns, so closing one meanwhile frees it later.
//
// A region that is not registered with this client is an error that names it, and nothing is sent: Triton knows regions by their names
// only, and would use other memory that has the name. Not registered is also a region whose last Register or Unregister has failed.
//
// After an error of Triton, as of a model that fails, the request has ended, and r.Outputs may be used again. After an error of
// ctx or of the connection, and after codes.Unavailable, the model may still be running: Unregister waits for that.
func (c *Client) Infer(ctx context.Context, r *Request) (*Response, error) {
	if err := argument.Context("triton: Infer", ctx); err != nil {
		return nil, err
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	outputs := slices.Clone(r.Outputs)
	regions := slices.Clone(r.Inputs)
	for _, o := range outputs {
		regions = append(regions, o.region)
	}
	if err := c.begin(ctx, regions, outputs); err != nil {
		return nil, err
	}
	known := false
	defer func() { c.end(regions, outputs, known) }()
	if err := ctx.Err(); err != nil { // mutant: never
		known = true
		return nil, fmt.Errorf("triton: infer: %w", err)
	}
	numbers := countRequest(outputs)
	var trailer metadata.MD
	reply, err := c.invoke(ctx, "ModelInfer", r.message(), grpc.Trailer(&trailer))
	known = requestEnded(err, trailer)
	if err != nil {
		return nil, err
	}
	response, err := parseResponse(reply)
	if err != nil {
		return nil, err
	}
	response.requests = numbers
	return response, nil
}

// Unregister makes the server close a region. When it returns nil, the server has closed it, and the region may be closed. It
// first waits for calls of Infer of this client that use the region. A server keeps a region open for requests whose
// calls have ended: up to Triton 24.11 it refuses to unregister the region, and Unregister asks again; later ones close it
// when the requests have ended, and Unregister polls its status until the server does not list it, or lists other memory under its
// name. If ctx ends the wait, call it again.
//
// It does nothing to a region that is not registered: of which Register has failed by an error of Triton, or that was unregistered.
// Another process may have its name, which stays registered; see [Client.UnregisterName]. After a Register whose end is not known,
// Triton does not tell CUDA memory of the same size on the same GPU from the region's. A region that only other clients have
// registered is an error. If Unregister fails after it has asked the server, requests cannot use the region before another Unregister
// and Register.
func (c *Client) Unregister(ctx context.Context, r *Region) error {
	if err := checkCall("triton: Unregister", ctx, r); err != nil {
		return err
	}
	done, err := c.takeTurn(ctx, r.name)
	if err != nil {
		return unregisterEnded(ctx, r.name)
	}
	defer done()
	defer c.leave(r)()
	if err := c.drain(ctx, r); err != nil { // mutant: deleted
		return err
	}
	open, elsewhere := r.openAt(c)
	switch {
	case elsewhere: // mutant: never
		const want = "Unregister of the client that has registered it"
		return fielderr.Invalid(opUnregister, r.field(), fielderr.Text("of no Register of this client"), want)
	case !open: // mutant: never
		return nil
	case !c.isReplaced(r): // else the server has closed it before
		if err := c.closeRegion(ctx, r); err != nil {
			return err
		}
	}
	r.noteClosed(c) // mutant: deleted
	if r.unregistered != nil {
		r.unregistered(c)
	}
	return nil
}

// closeRegion makes the server close a region. From the first call that may unregister it on, requests are refused.
func (c *Client) closeRegion(ctx context.Context, r *Region) error {
	e := r.entry()
	return c.close(ctx, e, func() (agreed bool, err error) {
		was := c.noteUnregistered(r)
		if agreed, err = c.requestClose(ctx, e); err == nil && !agreed && was {
			c.noteRegistered(r)
		}
		return agreed, err
	})
}

const service = "/inference.GRPCInferenceService/"

func (c *Client) invoke(ctx context.Context, method string, message []byte, opts ...grpc.CallOption) (reply []byte, err error) {
	err = c.conn.Invoke(ctx, service+method, message, &reply, append(opts, grpc.ForceCodecV2(codec{}))...)
	if err == nil {
		return reply, nil
	}
	// gRPC's error is not the context's, and the server may see the deadline before ctx does.
	if ended := cmp.Or(ctx.Err(), contextErrors[status.Code(err)]); ended != nil {
		err = fmt.Errorf("triton: %s: %w (%w)", method, ended, err)
	}
	return reply, err
}

// contextErrors has the errors of contexts that gRPC has a code for.
var contextErrors = map[codes.Code]error{
	codes.Canceled:         context.Canceled,
	codes.DeadlineExceeded: context.DeadlineExceeded,
}

// checkCall checks the arguments of a call about a region.
func checkCall(call string, ctx context.Context, r *Region) error {
	if err := argument.Context(call, ctx); err != nil {
		return err
	}
	if r == nil {
		return argument.Nil(call, "r", "a region")
	}
	return nil
}

// requestEnded reports whether an error shows that the server has ended the request: whether Triton made it. Of the codes that
// gRPC also makes, an error of Triton came in a trailer with gRPC's content type; errors of a broken connection have none.
func requestEnded(err error, trailer metadata.MD) bool {
	switch status.Code(err) {
	case codes.OK, codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange:
		return true
	case codes.Unknown, codes.Internal, codes.Unimplemented:
		return len(trailer.Get("content-type")) > 0
	}
	// The gRPC of the server sends the others of calls whose model is running: at a deadline, and at the age of a connection at
	// which it closes that.
	return false
}

// begin claims the outputs of a request, which may wait, and then acquires its regions, until end.
func (c *Client) begin(ctx context.Context, regions []*Region, outputs []*Outputs) (err error) {
	var held []*Region
	var claimed []*Outputs
	defer func() {
		if err != nil {
			c.end(held, claimed, true)
		}
	}()
	for _, o := range outputs {
		if err := o.claim(ctx); err != nil {
			return err
		}
		claimed = append(claimed, o)
	}
	for _, r := range regions {
		if err := c.enter(ctx, r); err != nil {
			return err
		}
		held = append(held, r)
	}
	return nil
}

func (c *Client) end(regions []*Region, outputs []*Outputs, known bool) {
	for _, o := range outputs {
		o.unclaim(c, known)
	}
	for _, r := range regions {
		c.exit(r, known)
	}
}
