package metamorphic

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/testing/foreign"
)

// An ArrowArray has no event, so what has one must not become one: its consumer would read at once.

func init() {
	register(&verb{name: "export at once", weight: 5, draw: drawAtOnce, expect: expectAtOnce, do: doAtOnce})
}

func drawAtOnce(g *generator) (Op, bool) {
	b := g.one(nil, batchKind, arrayKind)
	if b == nil {
		return Op{}, false
	}
	how := ""
	if b.ready() && g.IntN(3) == 0 {
		how = "synchronized"
	}
	return Op{On: []string{b.name}, Args: []string{how}}, true
}

// expectAtOnce: where the struct is refused is no matter of the model.
func expectAtOnce(m *model, o Op) (string, bool) {
	b := m.get(o.On[0], batchKind, arrayKind)
	if b == nil || o.arg(0) == "synchronized" && !b.ready() {
		return "", false
	}
	for _, h := range b.holds {
		h.exported = h.exported || b.at != cpu
	}
	if !b.ready() {
		return "ok", true
	}
	return b.String(), true
}

// doAtOnce exports an ArrowArray without a wait. It must be refused of what the CPU cannot access, and of what an ArrowDeviceArray has an
// event for; else C reads it at once.
func doAtOnce(r *run, o Op) string {
	v, b := r.values[o.On[0]], r.tables[o.On[0]]
	if o.arg(0) == "synchronized" {
		if err := v.(interface{ Synchronize(context.Context) error }).Synchronize(background); err != nil {
			return err.Error()
		}
	}
	event, err := hasEvent(v)
	switch {
	case err != nil:
		return err.Error()
	case event && o.arg(0) == "synchronized":
		return "an event after Synchronize"
	case !event && b.held && r.machine != nil:
		return "no event, although work is held back"
	}
	x := foreign.NewArray()
	defer foreign.Forget(x)
	err = exportTo(v, x, nil)
	if err == nil {
		defer func() { must(foreign.Release(x, foreign.Thread)) }()
	}
	switch want := r.atOnce(b, event); {
	case refusal(err) != want:
		return fmt.Sprintf("%s, not %s: %v", refusal(err), want, err)
	case !b.ready():
		return "ok"
	case err != nil:
		return doRead(r, Op{On: o.On, Args: hows})
	}
	return r.readPlain(x, b.table)
}

// atOnce is what an export as an ArrowArray must say.
func (r *run) atOnce(b object, event bool) string {
	what := map[bool]string{true: "RecordBatch", false: "Array"}[b.batch]
	switch {
	case !r.at(b.at).CPUAccessible():
		return failed("ErrNotSupported") + " of " + what + ".DeviceID"
	case event:
		return failed("ErrInvalid") + " of " + what + ".sync_event"
	}
	return "ok"
}

// refusal is an error and the field that it names.
func refusal(err error) string {
	var wrong *cdevice.FieldError
	if errors.As(err, &wrong) {
		return errorText(err) + " of " + wrong.Field
	}
	return errorText(err)
}

// hasEvent reports whether an ArrowDeviceArray of a batch or an array has an event.
func hasEvent(v any) (bool, error) {
	x := foreign.NewDeviceArray()
	defer foreign.Forget(x)
	if err := exportTo(v, x, nil); err != nil {
		return false, err
	}
	event := foreign.Event(x) != 0
	return event, foreign.Release(foreign.ArrayOf(x), foreign.Here)
}

// readPlain reads an ArrowArray in C.
func (r *run) readPlain(x *cdata.CArrowArray, t table) string {
	arr, err := foreign.Read(x, t.dataType(), r.fetch(r.at(cpu), true))
	if err != nil {
		return err.Error()
	}
	defer arr.Release()
	return seenStruct(t, arr)
}
