package main

import (
	"context"
	"errors"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/measure"
)

// orders compares a record of an event and a wait for it by another stream.
func orders() *comparison {
	return &comparison{
		name: "a record and a wait beside cuEventRecord and cuStreamWaitEvent", count: repeats, ours: []string{oursNow},
		begin: func(m *measure.Machine) (*sides, error) {
			l, err := newLine(m)
			if err != nil {
				return nil, err
			}
			return &sides{
				driver: l.settled(repeated(repeats, l.byDriver)),
				ours:   ours(l.settled(repeated(repeats, l.byOurs))),
				end:    l.end,
			}, nil
		},
	}
}

// handOver compares a batch through an exported and an imported stream, for which a stream of the consumer waits, with the
// record and the wait of the driver that it takes.
func handOver() *comparison {
	return &comparison{
		name: "a batch through a C stream beside cuEventRecord and cuStreamWaitEvent", count: repeats, ours: []string{oursNow},
		begin: func(m *measure.Machine) (*sides, error) {
			l, err := newLine(m)
			if err != nil {
				return nil, err
			}
			b, err := m.Allocate(mib, 1)
			if err != nil {
				return nil, errors.Join(err, l.end())
			}
			in, err := sent(b.Batch)
			if err != nil {
				return nil, errors.Join(err, b.Free(), l.end())
			}
			return &sides{
				driver: l.settled(repeated(repeats, l.byDriver)),
				ours: ours(l.settled(repeated(repeats, func() error {
					if !in.Next() {
						return in.Err()
					}
					return in.RecordBatch().WaitOn(l.to)
				}))),
				end: func() error {
					in.Release()
					return errors.Join(b.Free(), l.end())
				},
			}, nil
		},
	}
}

// sent returns a reader, through C, each of whose batches is batch.
func sent(batch *cdevice.RecordBatch) (*cdevice.RecordReader, error) {
	r, err := cdevice.NewRecordReaderFunc(context.Background(), batch.Schema(), batch.DeviceID().Type, func(context.Context) (*cdevice.RecordBatch, error) {
		batch.Retain()
		return batch, nil
	}, nil)
	if err != nil {
		return nil, err
	}
	defer r.Release()
	var out cdevice.CArrowDeviceArrayStream
	if err := cdevice.ExportRecordReader(r, &out); err != nil {
		return nil, err
	}
	return cdevice.ImportRecordReader(&out)
}

// line is two streams with an event between them.
type line struct {
	*measure.Machine
	from, to device.Stream
	event    device.Event
}

func newLine(m *measure.Machine) (l *line, err error) {
	l = &line{Machine: m}
	if l.from, err = m.GPU.NewStream(); err != nil {
		return nil, err
	}
	if l.to, err = m.GPU.NewStream(); err == nil {
		l.event, err = m.GPU.NewEvent()
	}
	return l, err
}

func (l *line) byDriver() error {
	if err := l.Context.Record(l.event.Handle(), l.from.Handle()); err != nil {
		return err
	}
	return l.Context.WaitEvent(l.to.Handle(), l.event.Handle())
}

func (l *line) byOurs() error {
	if err := l.from.Record(l.event); err != nil {
		return err
	}
	return l.to.WaitEvent(l.event)
}

// settled is a call after which the streams have no work.
func (l *line) settled(call measure.Call) measure.Call {
	return func() (func(), error) {
		_, err := call()
		return func() { _ = l.synchronize() }, err
	}
}

func (l *line) synchronize() error {
	return errors.Join(l.from.Synchronize(context.Background()), l.to.Synchronize(context.Background()))
}

func (l *line) end() error {
	return errors.Join(l.synchronize(), l.event.Close(), l.from.Close(), l.to.Close())
}
