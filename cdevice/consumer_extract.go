package cdevice

import (
	"errors"
	"fmt"
	"io"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/cstruct"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/items"
)

// extraction holds the struct that extract_data fills, during the call. It has no Go pointers in
// the same object: a producer that is written in Go passes it to C, and cgo's checks search the
// whole object.
type extraction struct {
	task abi.ArrowAsyncTask
	out  CArrowDeviceArray
}

// Next returns the next batch, owned by the caller, or io.EOF at the end.
func (c *consumer) Next() (*RecordBatch, error) {
	ready, err := c.take()
	if err != nil {
		return nil, err
	}
	g := c.given
	g.task = ready.task
	if code := bridge.CallExtractData(&g.task, deviceMirror(&g.out)); code != 0 {
		return nil, c.taskFailed(code)
	}
	c.request(1)
	batch, err := c.importBatch(&g.out)
	if err != nil {
		c.stop(err)
		return nil, err
	}
	if ready.metadata.Len() > 0 {
		md := ready.metadata
		batch.metadata = &md
	}
	return batch, nil
}

// take waits for a task. Once the context is done, it takes none.
func (c *consumer) take() (readyTask, error) {
	for {
		ready, err := c.first()
		if err != errContext {
			return ready, err
		}
		c.stopWithContext()
	}
}

// errContext is returned by first if the context is done.
var errContext = errors.New("cdevice: the context of the stream is done")

// first waits for a task, and takes it from the queue. After errContext, the caller must stop the
// stream, without holding the lock.
func (c *consumer) first() (readyTask, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.tasks.Size() == 0 && !c.ended && !c.stopped {
		c.changed.Wait()
	}
	switch {
	case !c.stopped && c.ctx.Err() != nil:
		return readyTask{}, errContext
	case !c.stopped && c.tasks.Size() > 0:
		return c.tasks.Pop(), nil
	case c.err != nil:
		return readyTask{}, c.err
	default:
		return readyTask{}, io.EOF
	}
}

func (c *consumer) importBatch(out *CArrowDeviceArray) (*RecordBatch, error) {
	const field = "ArrowAsyncTask.extract_data"
	if out.Array.Release == 0 {
		return nil, fielderr.Invalid(fielderr.OpImport, field, "a released array", "an array, or an error")
	}
	var in cstruct.Input
	in.SetDevice(deviceMirror(out))
	if t := c.begun.deviceType; out.DeviceType != int32(t) {
		c.opts.Discard(&in)
		return nil, fielderr.Invalid(fielderr.OpImport, field+"."+in.Names.Name+".device_type", out.DeviceType, fmt.Sprintf("%d, the device type of the producer", int32(t)))
	}
	batch, err := importBatch(&in, c.begun.schema, false, &c.opts)
	if err != nil {
		return nil, fielderr.Within(field, err)
	}
	return batch, nil
}

// taskFailed returns the error of a task that could not be extracted. It waits for on_error, whose
// error has a message. Tasks that were requested before the failure may arrive in between. If a
// task that was requested later arrives, or the handler is released, no on_error follows.
func (c *consumer) taskFailed(code int) error {
	c.mu.Lock()
	c.dropping = true
	if c.taskErr == nil {
		c.taskErr = &ProducerError{Callback: "ArrowAsyncTask.extract_data", Code: code}
	}
	c.mu.Unlock()
	c.drop()
	c.request(1)

	c.mu.Lock()
	for c.err == nil && !c.stopped && !c.isReleased() && (c.ended || c.wanted+c.room > 0) {
		c.changed.Wait()
	}
	if c.err == nil || c.err == errNoEnd {
		c.err = c.taskErr
	}
	err := c.err
	c.mu.Unlock()
	c.stop(err)
	return err
}

func (c *consumer) isReleased() bool { return items.IsClosed(c.released) }
