package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/arrowdevice/arrowdevice/internal/measure"
)

// comparison is calls of ours that are measured in turns with one of the driver's.
type comparison struct {
	name  string
	bytes int64 // that each call copies
	count int   // of what a call does
	ours  []string
	least map[string]float64 // the ratios that are promised
	begin func(m *measure.Machine) (*sides, error)
}

// sides are the calls of a comparison.
type sides struct {
	driver measure.Call
	ours   map[string]measure.Call
	end    func() error
}

// row is the name of a row.
func (c *comparison) row(of string) string { return c.name + ", " + of }

// measure measures the rows that are not there yet.
func (c *comparison) measure(ctx context.Context, m *measure.Machine, rows *rows, each time.Duration) (err error) {
	var missing []string
	for _, name := range c.ours {
		if !rows.print(c.row(name)) {
			missing = append(missing, name)
		}
	}
	if err := ctx.Err(); err != nil || len(missing) == 0 {
		return err
	}
	s, err := c.begin(m)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	calls := []measure.Call{s.driver}
	for _, name := range missing {
		call := s.ours[name]
		if call == nil {
			return fmt.Errorf("there is no call for %s", c.row(name))
		}
		calls = append(calls, call)
	}
	took, err := measure.Turns{Each: each, Bytes: c.bytes}.Measure(ctx, calls)
	if err != nil {
		return err
	}
	driver := measure.Median(took[0])
	for i, name := range missing {
		if err := rows.add(c.row(name), c.each(measure.Median(took[i+1])), c.each(driver)); err != nil {
			return err
		}
	}
	return nil
}

// each is the time of one of the things that a call does.
func (c *comparison) each(took time.Duration) float64 {
	return took.Seconds() * 1e6 / float64(max(c.count, 1))
}

// repeated is a call that does something so many times.
func repeated(count int, do func() error) measure.Call {
	return func() (func(), error) {
		for range count {
			if err := do(); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
}
