package metamorphic

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdata"
	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/foreign"
)

// Imports of structs in which one member is wrong.

func init() {
	register(&verb{name: "import wrong", weight: 8, draw: drawWrong, expect: expectWrong, do: doWrong})
}

// structs are the C structs of a producer, in memory of C, which a fault changes.
type structs struct {
	table
	root    *cdevice.CArrowDeviceArray
	child   *cdevice.CArrowDeviceArray // the first one: only its member Array exists
	undo    func()                     // after the import, before the remaining releases
	release []*cdevice.CArrowDeviceArray
}

// fault is a member of a struct that is wrong.
type fault struct {
	field    string // that the error names, after that of the root
	released bool   // the error is ErrReleased
	fits     func(t table) bool
	spoil    func(s *structs)
}

func always(table) bool { return true }

func hasColumns(t table) bool { return t.batch && len(t.types) > 0 }

func hasRows(t table) bool { return hasColumns(t) && t.rows > 0 }

// isFixed reports whether the first column has a bitmap and values of a fixed width.
func isFixed(t table) bool {
	if !hasRows(t) {
		return false
	}
	dt, ok := caseOf(t.types[0]).Type.(arrow.FixedWidthDataType)
	return ok && !arrow.IsNested(dt.ID()) && dt.ID() != arrow.DICTIONARY && dt.ID() != arrow.EXTENSION && dt.ID() != arrow.NULL
}

func isDictionary(t table) bool {
	return hasColumns(t) && caseOf(t.types[0]).Type.ID() == arrow.DICTIONARY
}

// faults are by name.
var faults = map[string]fault{
	"length":           {field: "length", fits: always, spoil: func(s *structs) { s.root.Array.Length = -1 }},
	"offset":           {field: "offset", fits: always, spoil: func(s *structs) { s.root.Array.Offset = -1 }},
	"offset too large": {field: "offset", fits: func(t table) bool { return t.rows > 0 }, spoil: func(s *structs) { s.root.Array.Offset = math.MaxInt64 }},
	"nulls":            {field: "null_count", fits: func(t table) bool { return t.batch }, spoil: func(s *structs) { s.root.Array.NullCount = 1 }},
	"too many nulls":   {field: "null_count", fits: always, spoil: func(s *structs) { s.root.Array.NullCount = s.root.Array.Length + 1 }},
	"buffers":          {field: "n_buffers", fits: func(t table) bool { return t.batch }, spoil: func(s *structs) { s.root.Array.NBuffers = 2 }},
	"negative buffers": {field: "n_buffers", fits: always, spoil: func(s *structs) { s.root.Array.NBuffers = -1 }},
	"no pointers":      {field: "buffers", fits: func(t table) bool { return t.batch }, spoil: func(s *structs) { s.root.Array.Buffers = 0 }},
	"odd pointers":     {field: "buffers", fits: func(t table) bool { return t.batch }, spoil: func(s *structs) { s.root.Array.Buffers++ }},
	"children":         {field: "n_children", fits: func(t table) bool { return t.batch }, spoil: func(s *structs) { s.root.Array.NChildren++ }},
	"no children":      {field: "children", fits: hasColumns, spoil: func(s *structs) { s.root.Array.Children = 0 }},
	"dictionary":       {field: "dictionary", fits: hasColumns, spoil: func(s *structs) { s.root.Array.Dictionary = s.root.Array.Children }},
	"released": {field: "release", released: true, fits: always, spoil: func(s *structs) {
		release := s.root.Array.Release
		s.root.Array.Release = 0
		s.undo = func() { s.root.Array.Release = release }
		s.release = append(s.release, s.root)
	}},
	"child": {field: "children[0].pointer", fits: hasColumns, spoil: func(s *structs) {
		*(*uintptr)(pointerAt(s.root.Array.Children)) = 0
		s.release = append(s.release, s.child)
	}},
	"released child": {field: "children[0].release", released: true, fits: hasColumns, spoil: func(s *structs) {
		release := s.child.Array.Release
		s.child.Array.Release = 0
		s.undo = func() { s.child.Array.Release = release }
		s.release = append(s.release, s.child)
	}},
	"short child": {field: "children[0].length", fits: hasRows, spoil: func(s *structs) {
		s.child.Array.Length, s.child.Array.NullCount = s.root.Array.Offset+s.root.Array.Length-1, -1
	}},
	"negative child":          {field: "children[0].length", fits: hasColumns, spoil: func(s *structs) { s.child.Array.Length = math.MinInt64 }},
	"offset of a child":       {field: "children[0].offset", fits: hasColumns, spoil: func(s *structs) { s.child.Array.Offset = -7 }},
	"nulls of a child":        {field: "children[0].null_count", fits: hasColumns, spoil: func(s *structs) { s.child.Array.NullCount = -2 }},
	"many nulls of a child":   {field: "children[0].null_count", fits: hasColumns, spoil: func(s *structs) { s.child.Array.NullCount = math.MaxInt64 }},
	"nulls without a bitmap":  {field: "children[0].buffers[0]", fits: isFixed, spoil: func(s *structs) { s.child.Array.NullCount = 1; s.setBuffer(0, 0) }},
	"values":                  {field: "children[0].buffers[1]", fits: isFixed, spoil: func(s *structs) { s.setBuffer(1, 0) }},
	"buffers of a child":      {field: "children[0].n_buffers", fits: hasColumns, spoil: func(s *structs) { s.child.Array.NBuffers = -3 }},
	"more buffers of a child": {field: "children[0].n_buffers", fits: isFixed, spoil: func(s *structs) { s.child.Array.NBuffers++ }},
	"pointers of a child":     {field: "children[0].buffers", fits: isFixed, spoil: func(s *structs) { s.child.Array.Buffers = 0 }},
	"children of a child":     {field: "children[0].n_children", fits: hasColumns, spoil: func(s *structs) { s.child.Array.NChildren++ }},
	"values of a dictionary":  {field: "children[0].dictionary", fits: isDictionary, spoil: func(s *structs) { s.child.Array.Dictionary = 0 }},
	"a dictionary of none":    {field: "children[0].dictionary", fits: isFixed, spoil: func(s *structs) { s.child.Array.Dictionary = s.root.Array.Children }},
	"schema of more": {field: "n_children", fits: hasColumns, spoil: func(s *structs) {
		s.table = s.table.append(s.table.pick(0))
	}},
	// Of a device.
	"type of a device":     {field: "ArrowDeviceArray.device_type", fits: always, spoil: func(s *structs) { s.root.DeviceType = -1 }},
	"no type of a device":  {field: "ArrowDeviceArray.device_type", fits: always, spoil: func(s *structs) { s.root.DeviceType = 0 }},
	"number of a device":   {field: "ArrowDeviceArray.device_id", fits: always, spoil: func(s *structs) { s.root.DeviceID = -9 }},
	"number of the CPU":    {field: "ArrowDeviceArray.device_id", fits: always, spoil: func(s *structs) { s.root.DeviceType, s.root.DeviceID = 1, 3 }},
	"event of the CPU":     {field: "ArrowDeviceArray.sync_event", fits: isFixed, spoil: func(s *structs) { s.root.DeviceType, s.root.DeviceID, s.root.SyncEvent = 1, -1, s.root.Array.Children }},
	"address of an event":  {field: "ArrowDeviceArray.sync_event", fits: always, spoil: func(s *structs) { s.root.DeviceType, s.root.DeviceID, s.root.SyncEvent = 2, 0, s.root.Array.Buffers+1 }},
	"exchanged addresses":  {field: "", fits: hasColumns, spoil: func(*structs) {}},
	"schema that is ended": {field: "ArrowSchema.release", released: true, fits: always, spoil: func(*structs) {}},
}

func pointerAt(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }

func (s *structs) setBuffer(i int, address uintptr) {
	unsafe.Slice((*uintptr)(pointerAt(s.child.Array.Buffers)), s.child.Array.NBuffers)[i] = address
}

// faultNames are sorted.
var faultNames = slices.Sorted(maps.Keys(faults))

func drawWrong(g *generator) (Op, bool) {
	return Op{Out: g.name(memoryKind), Args: append(g.spec(), string([]place{home, cpu}[g.IntN(2)]), faultNames[g.IntN(len(faultNames))])}, true
}

// way is a function that imports a struct.
type way struct {
	how    string // device, plain or cdata
	schema bool   // it takes a schema of C
}

// waysOf are the functions that find the fault in a struct of the table.
func waysOf(name string, t table, p place) (all []way) {
	f, ok := faults[name]
	if !ok || len(t.types) == 0 || !f.fits(t) {
		return nil
	}
	ofSchema := name == "exchanged addresses" || name == "schema that is ended"
	for _, how := range []string{"device", "plain", "cdata"} {
		for _, schema := range []bool{true, false} {
			switch {
			case how != "device" && p != cpu, strings.HasPrefix(f.field, "ArrowDeviceArray.") && how != "device", ofSchema && !schema:
			case name == "exchanged addresses" && how == "device", how == "cdata" && t.hasExtensions():
			default:
				all = append(all, way{how, schema})
			}
		}
	}
	return all
}

// refusal is the error of an import of the fault.
func (w way) refusal(name string) string {
	f := faults[name]
	field := f.field
	switch {
	case name == "exchanged addresses":
		field = "ArrowArray"
	case strings.HasPrefix(field, "ArrowDeviceArray.") || strings.HasPrefix(field, "ArrowSchema."):
	case w.how == "device":
		field = "ArrowDeviceArray.array." + field
	default:
		field = "ArrowArray." + field
	}
	if f.released {
		return failed("ErrReleased") + " of " + field
	}
	return failed("ErrInvalid") + " of " + field
}

// expectWrong: each struct is released at once, and its schema.
func expectWrong(m *model, o Op) (string, bool) {
	var text []string
	for i, w := range waysOf(o.arg(6), specOf(o).table(), place(o.arg(5))) {
		memory := m.add(wrongMemory(o, i), memoryKind, object{})
		memory.refs = 0
		m.ended[memory.name] = soon
		text = append(text, w.refusal(o.arg(6)))
	}
	return strings.Join(text, "\n"), text != nil
}

func wrongMemory(o Op, i int) string { return fmt.Sprintf("%s.%d", o.Out, i) }

// doWrong imports a struct of its own in each way.
func doWrong(r *run, o Op) string {
	var text []string
	for i, w := range waysOf(o.arg(6), specOf(o).table(), place(o.arg(5))) {
		p, err := r.produce(specOf(o), place(o.arg(5)), "")
		if err != nil {
			return err.Error()
		}
		r.producers[wrongMemory(o, i)] = p
		text = append(text, r.wrong(o, p, w))
	}
	return strings.Join(text, "\n")
}

func (r *run) wrong(o Op, p *foreign.Producer, w way) string {
	name := o.arg(6)
	c := &structs{table: specOf(o).table(), root: p.Device()}
	if c.batch {
		c.child = cdevice.DeviceArrayFromPtr(*(*uintptr)(pointerAt(c.root.Array.Children)))
	}
	faults[name].spoil(c)
	var schema *cdata.CArrowSchema
	if w.schema {
		schema = r.producerSchema(p, c.table, "c")
	}
	if name == "schema that is ended" {
		cdata.ReleaseCArrowSchema(schema)
	}
	err := r.importWrong(c, schema, w, o)
	if c.undo != nil {
		c.undo()
	}
	for _, left := range c.release {
		must(foreign.Release(foreign.ArrayOf(left), foreign.Here))
	}
	if name == "exchanged addresses" {
		must(foreign.Release(foreign.ArrayOf(c.root), foreign.Here))
		cdata.ReleaseCArrowSchema(schema)
	}
	var wrong *cdevice.FieldError
	if !errors.As(err, &wrong) {
		return fmt.Sprintf("no error about a field: %v", err)
	}
	if isSame(wrong) {
		r.note("%v", err)
	}
	return errorText(err) + " of " + wrong.Field
}

// isSame reports whether an error is the same in all worlds: it has neither an address nor a device.
func isSame(e *cdevice.FieldError) bool {
	text := e.Error()
	return !strings.Contains(text, "0x") && !strings.Contains(text, "device_") && !strings.Contains(text, "sync_event")
}

// importWrong imports a struct, whose error names no device.
func (r *run) importWrong(c *structs, schema *cdata.CArrowSchema, w way, o Op) error {
	a := foreign.ArrayOf(c.root)
	if o.arg(6) == "exchanged addresses" {
		a, schema = (*cdata.CArrowArray)(unsafe.Pointer(schema)), (*cdata.CArrowSchema)(unsafe.Pointer(a))
	}
	known := c.schema()
	dt := caseOf(c.types[0]).Type
	var err error
	switch how := w.how; {
	case how == "cdata" && c.batch && schema != nil:
		_, err = cdata.ImportCRecordBatch(a, schema)
	case how == "cdata" && c.batch:
		_, err = cdata.ImportCRecordBatchWithSchema(a, known)
	case how == "cdata" && schema != nil:
		_, _, err = cdata.ImportCArray(a, schema)
	case how == "cdata":
		_, err = cdata.ImportCArrayWithType(a, dt)
	case how == "plain":
		err = importWith(a, schema, known, dt, c.batch)
	default:
		err = importWith(c.root, schema, known, dt, c.batch, cdevice.WithDevice(r.deviceOf(c.root, place(o.arg(5)))))
	}
	return err
}

// deviceOf is the device that the struct names, or that of the place.
func (r *run) deviceOf(c *cdevice.CArrowDeviceArray, p place) device.Device {
	if c.DeviceType == int32(device.CPU) {
		return device.CPUDevice()
	}
	return r.at(p)
}

func importWith[S cdevice.ArrayStruct](a *S, schema *cdata.CArrowSchema, known *arrow.Schema, dt arrow.DataType, batch bool, opts ...cdevice.ImportOption) (err error) {
	switch {
	case batch && schema != nil:
		_, err = cdevice.ImportRecordBatch(a, schema, opts...)
	case batch:
		_, err = cdevice.ImportRecordBatchWithSchema(a, known, opts...)
	case schema != nil:
		_, err = cdevice.ImportArray(a, schema, opts...)
	default:
		_, err = cdevice.ImportArrayWithType(a, dt, opts...)
	}
	return err
}
