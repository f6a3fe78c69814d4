package metamorphic

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/testing/foreign"
)

// Batches of columns whose memory different streams fill, each of which is held back by an event of its own.

func init() {
	register(&verb{name: "joint events", weight: 4, draw: drawJoint, expect: expectAlone, do: doJoint})
}

func drawJoint(g *generator) (Op, bool) {
	return Op{Args: []string{"array", g.types(1)[0], num(g.IntN(3)), num(1 + g.IntN(9)), num(g.IntN(1000)), num(2 + g.IntN(3)),
		[]string{"combine", "with column"}[g.IntN(2)], num(g.IntN(1000))}}, true
}

// joint is a batch of columns of several producers.
type joint struct {
	*run
	random    *rand.Rand
	streams   []*heldStream
	producers []*foreign.Producer
	columns   []*cdevice.Array
	t         table
}

// doJoint has the streams go on in any order: the batch is complete after the last one, and its memory ends with it.
func doJoint(r *run, o Op) string {
	j := &joint{run: r, random: rand.New(rand.NewPCG(uint64(o.num(7)), 6)), t: table{batch: true, rows: o.num(3)}}
	for k := range o.num(5) {
		if err := j.add(specOf(o), k); err != nil {
			return err.Error()
		}
	}
	b, err := j.batch(o.arg(6))
	for _, a := range j.columns {
		a.Release()
	}
	if err == nil {
		err = j.fireAll(b)
	}
	if err == nil {
		err = j.sees(b, j.t)
	}
	if b != nil {
		b.Release()
	}
	return seenError(errors.Join(err, j.end()))
}

// add imports column k.
func (j *joint) add(s spec, k int) error {
	held, err := j.holdStream(j.home)
	if err != nil {
		return err
	}
	j.streams = append(j.streams, held)
	s.seed += uint64(k)
	p, err := j.produceOn(s, home, "event", held.Stream)
	if err != nil {
		return err
	}
	j.producers = append(j.producers, p)
	a, err := cdevice.ImportArrayWithType(p.Device(), caseOf(s.types[0]).Type, j.importOptions(j.home)...)
	if err != nil {
		return err
	}
	j.columns = append(j.columns, a)
	column := s.table()
	column.names = []string{columnName(k)}
	j.t = j.t.append(column)
	return nil
}

// batch makes a batch of the columns, of which the last one may be added to a batch of the others.
func (j *joint) batch(how string) (*cdevice.RecordBatch, error) {
	if how == "combine" {
		return cdevice.RecordBatchFromArrays(j.t.schema(), j.columns...)
	}
	last := len(j.columns) - 1
	var others []int
	for i := range last {
		others = append(others, i)
	}
	schema := j.t.pick(others...).schema()
	rest, err := cdevice.RecordBatchFromArrays(schema, j.columns[:last]...)
	if err != nil {
		return nil, err
	}
	defer rest.Release()
	return rest.WithColumn(fieldOf(columnName(last), j.t.types[last]), j.columns[last])
}

// fireAll lets one stream after the other go on. Before the last one does, the batch is not complete.
func (j *joint) fireAll(b *cdevice.RecordBatch) error {
	for i, k := range j.random.Perm(len(j.streams)) {
		ready, err := b.Ready()
		switch {
		case err != nil:
			return err
		case ready && j.machine != nil:
			return fmt.Errorf("the batch is complete after %d of %d events", i, len(j.streams))
		}
		if err := errors.Join(j.streams[k].fire(), j.streams[k].Synchronize(background)); err != nil {
			return err
		}
	}
	return nil
}

// end waits until the memory has ended, and frees all.
func (j *joint) end() (err error) {
	for k, p := range j.producers {
		err = errors.Join(err, j.streams[k].fire(), j.streams[k].Synchronize(background))
		if !becomes(limit(), func() bool { return p.Ended() > 0 }) {
			err = errors.Join(err, fmt.Errorf("the memory of column %d was not released", k))
		}
		err = errors.Join(err, p.Misuses(), p.Reap(), j.streams[k].end())
		p.Free()
	}
	return err
}
