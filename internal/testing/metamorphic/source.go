package metamorphic

import (
	"fmt"
	"go/format"
	"strings"
)

// Source is a program as a test in Go. Calls of the library are written out; a [Play] does those of producers, consumers and readers.
func Source(p Program, world string) string {
	all, _ := steps(p)
	p.Ops = applying(p)
	var b strings.Builder
	fmt.Fprintf(&b, "package replay\n\nimport (\n%s)\n\nfunc TestReplay(t *testing.T) {\n", imports)
	fmt.Fprintf(&b, "w := metamorphic.Start(t, %q, program)\n", world)
	var objects []string
	for i, s := range all {
		b.WriteString(s.code(i))
		for _, name := range s.made {
			objects = append(objects, fmt.Sprintf("%q: %s", name, variable(name)))
		}
	}
	fmt.Fprintf(&b, "w.End(map[string]any{%s})\n", strings.Join(objects, ", "))
	fmt.Fprintf(&b, "}\n%s\nconst program = `%s`\n", used, p)
	text, err := format.Source([]byte(b.String()))
	if err != nil {
		return b.String()
	}
	return string(text)
}

const imports = `	"context"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/testing/foreign"
	"github.com/arrowdevice/arrowdevice/internal/testing/metamorphic"
`

// used has every import used, whichever operations there are.
const used = `
var (
	ctx = context.Background()
	_   arrow.RecordBatch
	_   cdata.CArrowArray
	_   = cdevice.ErrReleased
	_   = foreign.Here
)
`

// code is operation i as statements of Go.
func (s step) code(i int) string {
	var text string
	if template := templates[s.Verb]; template != nil {
		text = template(s)
		for i, name := range s.On {
			text = strings.ReplaceAll(text, fmt.Sprintf("$%d", i), variable(name))
		}
		for i, arg := range s.Args {
			text = strings.ReplaceAll(text, fmt.Sprintf("#%d", i), arg)
		}
		text = strings.NewReplacer("$on", strings.Join(variables(s.On), ", "), "$out", variable(s.Out)).Replace(text)
	}
	switch {
	case text != "" && s.At != "":
		return fmt.Sprintf("// on another goroutine, in a callback of C or on a thread of C: %s\n%s\n", s.Op, text)
	case text != "":
		return text + "\n"
	}
	call := fmt.Sprintf("w.Do(%s)", strings.Join(append([]string{num(i)}, variables(s.On)...), ", "))
	if len(s.made) == 0 {
		return fmt.Sprintf("%s // %s\n", call, s.Op)
	}
	code := fmt.Sprintf("%s := %s%s // %s\n", variable(s.made[0]), call, s.assertion(s.made[0]), s.Op)
	if len(s.made) > 1 || s.made[0] != s.Out {
		code = fmt.Sprintf("%s // %s\n", call, s.Op)
		for _, name := range s.made {
			code += fmt.Sprintf("%s := w.Made(%q)%s\n", variable(name), name, s.assertion(name))
		}
	}
	return code
}

// assertion is that of the type of an object, unless that is left open.
func (s step) assertion(name string) string {
	made := s.uses[name]
	if t := made.kind.goType(made); t != "" {
		return ".(" + t + ")"
	}
	return ""
}

// variable is the name of an object in Go.
func variable(name string) string { return strings.ReplaceAll(name, ".", "_") }

func variables(names []string) (all []string) {
	for _, name := range names {
		all = append(all, variable(name))
	}
	return all
}

// goType is the type of an object, or "" where it is left open.
func (k kind) goType(o object) string {
	either := func(is bool, yes, no string) string {
		if is {
			return yes
		}
		return no
	}
	switch k {
	case producerKind:
		return "*foreign.Producer"
	case batchKind:
		return "*cdevice.RecordBatch"
	case arrayKind:
		return "*cdevice.Array"
	case recordKind:
		return either(o.batch, "arrow.RecordBatch", "arrow.Array")
	case structKind:
		return either(o.plain, "*cdata.CArrowArray", "*cdevice.CArrowDeviceArray")
	case readerKind:
		return "*cdevice.RecordReader"
	case arrayReaderKind:
		return "*cdevice.ArrayReader"
	}
	return ""
}

// templates are operations as calls of the library: $0 is the first object, #0 the first argument.
var templates = map[string]func(s step) string{
	"import": importCode,
	"slice":  assigned("$0.Slice(#0, #1)"),
	"select": func(s step) string { return assigned("$0.Select(" + strings.Join(s.Args, ", ") + ")")(s) },
	"column": func(step) string { return "$out := $0.Column(#0)" },
	"combine": func(s step) string {
		return assigned("cdevice.RecordBatchFromArrays(" + s.uses[s.Out].schemaCode() + ", $on)")(s)
	},
	"with column": func(s step) string {
		return assigned("$0.WithColumn(" + fieldCode("#0", s.uses[s.On[1]].types[0]) + ", $1)")(s)
	},
	"with metadata": func(step) string {
		return `$out := $0.WithMetadata(arrow.NewMetadata([]string{"key"}, []string{"value"}))`
	},
	"copy":          assigned(`$0.CopyTo(ctx, w.Device("#0"))`),
	"with event":    assigned(`$0.WithEvent(w.Stream("#0"))`),
	"retain":        func(step) string { return "$0.Retain()" },
	"release":       releaseCode,
	"used on":       func(step) string { return `w.Must($0.UsedOn(w.Stream("#0")))` },
	"wait on":       func(step) string { return `w.Must($0.WaitOn(w.Stream("#0")))` },
	"export":        exportCode,
	"import struct": importStructCode,
}

// assigned is a call that returns an object and an error.
func assigned(call string) func(step) string {
	return func(step) string { return "$out, err := " + call + "\nw.Must(err)" }
}

func importCode(s step) string {
	p := s.uses[s.On[0]]
	from := "$0.Device()"
	if s.arg(0) == "plain" {
		from = "$0.Plain()"
	}
	options := fmt.Sprintf("cdevice.WithDevice(w.Device(%q))", p.at)
	switch s.arg(2) {
	case "releaser":
		options += ", cdevice.WithReleaser(func(release func()) { release(); release() })"
	case "after event":
		options += ", cdevice.WithReleaseAfterEvent()"
	}
	return importCall(p, from, s.arg(1) == "c", options)
}

func importCall(p object, from string, schema bool, options string) string {
	what := map[bool]string{true: "RecordBatch", false: "Array"}[p.batch]
	switch {
	case schema && p.batch:
		return assigned(fmt.Sprintf("cdevice.Import%s(%s, $0.Schema(%s, arrow.Field{}), %s)", what, from, p.schemaCode(), options))(step{})
	case schema:
		return assigned(fmt.Sprintf("cdevice.Import%s(%s, $0.Schema(nil, %s), %s)", what, from, fieldCode(arrayName, p.types[0]), options))(step{})
	case p.batch:
		return assigned(fmt.Sprintf("cdevice.Import%sWithSchema(%s, %s, %s)", what, from, p.schemaCode(), options))(step{})
	}
	return assigned(fmt.Sprintf("cdevice.Import%sWithType(%s, metamorphic.Type(%q), %s)", what, from, p.types[0], options))(step{})
}

func importStructCode(s step) string {
	x := s.uses[s.On[0]]
	return importCall(x, "$0", false, fmt.Sprintf("cdevice.WithDevice(w.Device(%q))", x.at))
}

func exportCode(s step) string {
	if s.arg(0) != "device" || s.arg(2) != "" {
		return ""
	}
	out := "foreign.NewDeviceArray()"
	if s.arg(1) == "go" {
		out = "new(cdevice.CArrowDeviceArray)"
	}
	what := map[bool]string{true: "RecordBatch", false: "Array"}[s.uses[s.Out].batch]
	return "$out := " + out + "\nw.Must(cdevice.Export" + what + "($0, $out, nil))"
}

func releaseCode(s step) string {
	switch o := s.uses[s.On[0]]; o.kind {
	case batchKind, arrayKind:
		return "$0.Release()"
	case structKind:
		if o.plain {
			return "w.Must(foreign.Release($0, #0))"
		}
		return "w.Must(foreign.Release(foreign.ArrayOf($0), #0))"
	}
	return ""
}

func (t table) schemaCode() string {
	fields := make([]string, len(t.types))
	for i := range fields {
		fields[i] = fieldCode(t.names[i], t.types[i])
	}
	return "arrow.NewSchema([]arrow.Field{" + strings.Join(fields, ", ") + "}, metamorphic.Tag())"
}

func fieldCode(name, kind string) string {
	return fmt.Sprintf("metamorphic.Field(%q, %q)", name, kind)
}
