//go:build cgo && unix

package pyextension

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
)

// Option describes a function to Python.
type Option func(*function) error

// WithParams names the parameters of the function, after the context, in order. Python callers may
// then pass them by name. Without it, each parameter gets the name of its type: stream, batch,
// array, schema, otherwise arg; numbered if there are several.
func WithParams(names ...string) Option {
	return func(f *function) error {
		if len(names) != len(f.params) {
			return fmt.Errorf("WithParams has %d names for %d parameters", len(names), len(f.params))
		}
		for i, name := range names {
			if !isName(name) {
				return fmt.Errorf("WithParams: %q is not a name in Python", name)
			}
			if slices.Contains(names[:i], name) {
				return fmt.Errorf("WithParams has %q twice", name)
			}
			f.params[i].name = name
		}
		return nil
	}
}

// WithDefault makes a parameter optional: for Python callers that leave it out it is value, which
// is nil or of a type that the parameter takes. It comes after WithParams, as it takes the names
// from there. All parameters after an optional one must be optional.
func WithDefault(param string, value any) Option {
	return func(f *function) error {
		i := slices.IndexFunc(f.params, func(p parameter) bool { return p.name == param })
		if i < 0 {
			return fmt.Errorf("WithDefault: there is no parameter %q", param)
		}
		plain, err := (&results{}).any(reflect.ValueOf(&value).Elem())
		if err != nil {
			return fmt.Errorf("WithDefault: the value of %s: %w", param, err)
		}
		sc := newScope()
		defer sc.drop()
		if _, err := f.params[i].from(sc, plain); err != nil {
			return fmt.Errorf("WithDefault: the value of %s: %w", param, err)
		}
		f.params[i].value, f.params[i].optional = plain, true
		return nil
	}
}

// WithDoc sets the text that help() shows in Python.
func WithDoc(text string) Option {
	return func(f *function) error {
		f.doc = text
		return nil
	}
}

// Func registers f as a function of the library, under a name that Python can use. It is called from
// init functions. The parameters of f are an optional context.Context, then values of the types in the
// table of the package comment; its results are values of these types, then an optional error.
//
// A Python process ends if a Go library panics while it is loaded. So a wrong registration, such as a
// type that is not in the table, does not panic: loading the library in Python raises ImportError with
// the reason, which [Check] returns to a Go test.
func Func(name string, f any, opts ...Option) {
	made, err := newFunction(name, f, opts)
	functions.mu.Lock()
	defer functions.mu.Unlock()
	if err == nil && functions.find([]byte(name)) != nil {
		err = errors.New("the name is registered twice")
	}
	if err != nil {
		functions.failed = errors.Join(functions.failed, fmt.Errorf("pyextension.Func %q: %w", name, err))
		return
	}
	functions.set(append(functions.all, made))
}

// Check returns the errors of all wrong registrations by [Func] in this program, or nil.
func Check() error {
	functions.mu.Lock()
	defer functions.mu.Unlock()
	return functions.failed
}

var functions registry

// registry is the functions of the library.
type registry struct {
	mu     sync.Mutex
	all    []*function
	failed error
	byName atomic.Pointer[map[string]*function] // of all; a map is never changed
}

func (r *registry) find(name []byte) *function {
	if all := r.byName.Load(); all != nil {
		return (*all)[string(name)]
	}
	return nil
}

// set replaces the functions. The caller holds mu.
func (r *registry) set(all []*function) {
	byName := map[string]*function{}
	for _, f := range all {
		byName[f.name] = f
	}
	r.all = all
	r.byName.Store(&byName)
}

// function is a registered function.
type function struct {
	name        string
	doc         string
	call        reflect.Value
	takesCtx    bool
	givesReader bool
	params      []parameter
	results     []*converter
	returnsErr  bool
	annotations string // of the results
}

type parameter struct {
	name     string
	optional bool
	value    any // the default, as encoder.value takes it
	*converter
}

func newFunction(name string, f any, opts []Option) (*function, error) {
	if !isName(name) {
		return nil, errors.New("the name is not one that a function in Python can have")
	}
	v := reflect.ValueOf(f)
	if v.Kind() != reflect.Func || v.IsNil() {
		return nil, fmt.Errorf("f is %T, not a function", f)
	}
	t := v.Type()
	if t.IsVariadic() {
		return nil, errors.New("f has a variable number of parameters: take a slice")
	}
	made := &function{name: name, call: v}
	if err := made.addParams(t); err != nil {
		return nil, err
	}
	if err := made.addResults(t); err != nil {
		return nil, err
	}
	for _, opt := range opts {
		if opt == nil {
			return nil, errors.New("an option is nil")
		}
		if err := opt(made); err != nil {
			return nil, err
		}
	}
	for i := 1; i < len(made.params); i++ {
		if made.params[i-1].optional && !made.params[i].optional {
			return nil, fmt.Errorf("parameter %s has no default, and follows one that has", made.params[i].name)
		}
	}
	return made, nil
}

func (f *function) addParams(t reflect.Type) error {
	first := 0
	if t.NumIn() > 0 && t.In(0) == contextType {
		f.takesCtx, first = true, 1
	}
	for i := first; i < t.NumIn(); i++ {
		c, err := converterOf(t.In(i))
		if err == nil && holds(t.In(i), asyncType) {
			err = fmt.Errorf("type %s is a result only: no object of Python is an asynchronous stream", t.In(i))
		}
		if err != nil {
			return fmt.Errorf("parameter %d: %w", i, err)
		}
		f.params = append(f.params, parameter{converter: c})
	}
	f.nameParams()
	return nil
}

// nameParams names the parameters after their types.
func (f *function) nameParams() {
	base := func(p parameter) string {
		switch p.python {
		case kindReader.String():
			return "stream"
		case kindBatch.String():
			return "batch"
		case kindArray.String():
			return "array"
		case kindSchema.String():
			return "schema"
		}
		return "arg"
	}
	total, seen := map[string]int{}, map[string]int{}
	for _, p := range f.params {
		total[base(p)]++
	}
	for i := range f.params {
		name := base(f.params[i])
		f.params[i].name = name
		if total[name] > 1 {
			seen[name]++
			f.params[i].name = fmt.Sprintf("%s%d", name, seen[name])
		}
	}
}

func (f *function) addResults(t reflect.Type) error {
	n := t.NumOut()
	if n > 0 && t.Out(n-1) == errorType {
		f.returnsErr = true
		n--
	}
	for i := range n {
		c, err := converterOf(t.Out(i))
		if err != nil {
			return fmt.Errorf("result %d: %w", i, err)
		}
		f.results = append(f.results, c)
		f.givesReader = f.givesReader || holds(t.Out(i), readerTypes...)
	}
	switch n {
	case 0:
		f.annotations = "None"
	case 1:
		f.annotations = f.results[0].python
	default:
		f.annotations = "tuple["
		for i, c := range f.results {
			if i > 0 {
				f.annotations += ", "
			}
			f.annotations += c.python
		}
		f.annotations += "]"
	}
	return nil
}

// run calls the function with the arguments of a request, and returns the value for the reply.
func (f *function) run(sc *scope, r *results, args []any) (any, error) {
	if len(args) != len(f.params) {
		return nil, typeErrorf("%s: %d arguments for %d parameters", f.name, len(args), len(f.params))
	}
	in := make([]reflect.Value, 0, len(args)+1)
	if f.takesCtx {
		in = append(in, reflect.ValueOf(sc.context()))
	}
	for i, p := range f.params {
		v, err := p.from(sc, args[i])
		if err != nil {
			return nil, about(fmt.Sprintf("%s: argument %s", f.name, p.name), err)
		}
		in = append(in, v)
	}
	out := f.call.Call(in)
	var failed error
	if f.returnsErr {
		last := len(out) - 1
		failed, _ = out[last].Interface().(error)
		out, r.failed = out[:last], failed != nil
	}
	values := make([]any, len(out))
	for i, v := range out { // all of them, also beside an error, since each is taken over
		var err error
		if values[i], err = f.results[i].to(r, v); err != nil && failed == nil {
			failed = about(f.name+": result", err)
		}
	}
	if failed != nil {
		return nil, failed
	}
	switch len(values) {
	case 0:
		return nil, nil
	case 1:
		return values[0], nil
	}
	return tuple(values), nil
}

func (f *function) called() string { return f.name }

func (f *function) waits([]any) bool { return f.apart() }

// apart: a reader of array.ReaderFromIter that is made or wrapped on a thread of Python can be read nowhere else.
func (f *function) apart() bool { return f.takesCtx || f.givesReader }

// describe returns the function as Python learns of it.
func (f *function) describe() dict {
	params := make([]any, len(f.params))
	for i, p := range f.params {
		d := dict{{"name", p.name}, {"type", p.python}}
		if p.optional {
			d = append(d, item{"default", p.value})
		}
		params[i] = d
	}
	return dict{{"name", f.name}, {"doc", f.doc}, {"params", params}, {"returns", f.annotations}}
}

var validName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)

// keywords of Python cannot be names.
var keywords = []string{
	"False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif", "else",
	"except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise",
	"return", "try", "while", "with", "yield",
}

func isName(s string) bool { return validName.MatchString(s) && !slices.Contains(keywords, s) }
