package metamorphic

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Op is one operation of a program. Its line "b4 = slice(b3; 1, 5) @goroutine" makes b4 of b3 and of two arguments, on another goroutine.
type Op struct {
	Out  string   // the object that it makes, or ""
	Verb string   // the name of the operation
	On   []string // the objects that it uses
	Args []string
	At   string // where it runs: "", another "goroutine", a "callback" of C, a "thread" of C
}

// none is the text of an empty argument.
const none = "-"

func (o Op) String() string {
	var b strings.Builder
	if o.Out != "" {
		b.WriteString(o.Out + " = ")
	}
	b.WriteString(o.Verb + "(" + strings.Join(o.On, ", "))
	if len(o.Args) > 0 {
		for i, arg := range o.Args {
			b.WriteString([]string{", ", "; "}[1-min(i, 1)] + cmp.Or(arg, none))
		}
	}
	b.WriteString(")")
	if o.At != "" {
		b.WriteString(" @" + o.At)
	}
	return b.String()
}

// ParseOp is the inverse of [Op.String].
func ParseOp(line string) (o Op, err error) {
	text := strings.TrimSpace(line)
	if before, after, ok := strings.Cut(text, " = "); ok && !strings.Contains(before, "(") {
		o.Out, text = before, after
	}
	if i := strings.LastIndex(text, " @"); i > strings.LastIndex(text, ")") {
		text, o.At = text[:i], text[i+2:]
	}
	verb, rest, ok := strings.Cut(text, "(")
	if !ok || !strings.HasSuffix(rest, ")") {
		return o, fmt.Errorf("metamorphic: no operation: %q", line)
	}
	o.Verb = verb
	on, args, _ := strings.Cut(strings.TrimSuffix(rest, ")"), ";")
	o.On, o.Args = list(on), list(args)
	for i, arg := range o.Args {
		if arg == none {
			o.Args[i] = ""
		}
	}
	return o, nil
}

func list(text string) (all []string) {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			all = append(all, part)
		}
	}
	return all
}

// arg returns argument i, or "".
func (o Op) arg(i int) string {
	if i >= len(o.Args) {
		return ""
	}
	return o.Args[i]
}

// num returns argument i as a number, or 0.
func (o Op) num(i int) int {
	n, _ := strconv.Atoi(o.arg(i))
	return n
}

func num(n int) string { return strconv.Itoa(n) }

// Program is a list of operations, and a seed, which decides the order of the releases at the end.
type Program struct {
	Seed uint64
	Ops  []Op
}

func (p Program) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d\n", p.Seed)
	for _, o := range p.Ops {
		b.WriteString(o.String() + "\n")
	}
	return b.String()
}

// Parse is the inverse of [Program.String]. Lines that begin with # are comments.
func Parse(text string) (p Program, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "seed "):
			if p.Seed, err = strconv.ParseUint(line[len("seed "):], 10, 64); err != nil {
				return p, err
			}
		default:
			o, err := ParseOp(line)
			if err != nil {
				return p, err
			}
			p.Ops = append(p.Ops, o)
		}
	}
	return p, nil
}
