package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is one file of the library with one wait removed.
type mutant struct {
	file     string // from the root of the repository
	line     int
	function string // that the wait is in
	removed  string // the removed part, for people
	instead  string // the replacement
	content  []byte // of the file without the wait
}

func (m *mutant) site() string { return fmt.Sprintf("%s:%d", m.file, m.line) }

// removal is how a call is removed so that the rest compiles and reports success.
type removal int

const (
	succeeds   removal = iota + 1 // the call returns nil
	isDone                        // returns true, nil: a query whether work is done
	isFree                        // returns false, nil: a query for an obstacle, such as a capture
	once                          // calls its last argument, a query, once instead of until it is true
	atOnce                        // calls its last argument, a function, instead of having it called later
	endsAtOnce                    // ends its last argument, a deferral, instead of putting it off
	unproven                      // is made without its last argument, the evidence that work is done
	nothing                       // has no result
	anywhere                      // is made on the default stream, not on the one that was named
)

// waits are the names of functions and methods that wait, make others wait, or put off.
// Which of two a name is that both a function and a method have, kindOf knows.
var waits = map[string]removal{
	"Synchronize": succeeds, "SynchronizeEvent": succeeds, "SynchronizeStream": succeeds, "synchronize": succeeds,
	"WaitEvent": succeeds, "WaitOn": succeeds,
	"Wait": succeeds, "wait": succeeds, "waitEvent": succeeds, "block": succeeds, "startWait": succeeds,
	"Record": succeeds, "record": anywhere,
	"Flush": succeeds, "flush": succeeds, "idle": succeeds, "pushBack": succeeds, "waitForFrees": succeeds,

	"poll": once,

	"Query": isDone, "query": isDone, "QueryEvent": isDone, "QueryStream": isDone, "QueryEventFor": isDone, "QueryStreamFor": isDone,
	"reached": isDone, "trySynchronize": isDone, "synchronizeUncaptured": isDone, "SynchronizeFor": isDone,

	"Capturing": isFree, "mayUse": isFree,

	"AfterWork": atOnce, "AfterEvent": atOnce, "OnComplete": atOnce, "later": atOnce, "keepUntilDone": atOnce, "afterStream": atOnce,
	"after": atOnce, "afterUsers": atOnce, "afterEvent": atOnce,
	"add": endsAtOnce,

	"endAfter": unproven, "FreeAfter": unproven,

	"UsedOn": nothing, "usedOn": succeeds, "usedOnAny": succeeds, "MarkExported": nothing,

	"Copy": anywhere, "CopyPeer": anywhere, "Memset": anywhere, "Upload": anywhere, "Allocate": anywhere, "Free": anywhere,
	"Prefetch": anywhere, "PrefetchToHost": anywhere, "prefetch": anywhere,
	"NewPoolMemory": anywhere, "FreePoolMemory": anywhere, "FreePoolMemoryFor": anywhere,
}

// streams are the names of a stream that is the last argument.
var streams = []string{"s", "stream", "c.stream", "d.stream", "m.heap.background"}

// findAll finds the mutants of all packages below root.
func findAll(root string) (all []*mutant, err error) {
	for _, dir := range slices.Sorted(maps.Keys(suites)) {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil {
			return nil, err
		}
		found := 0
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			source, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			name, err := filepath.Rel(root, file)
			if err != nil {
				return nil, err
			}
			mutants, err := find(filepath.ToSlash(name), source)
			if err != nil {
				return nil, err
			}
			all = append(all, mutants...)
			found++
		}
		if found == 0 {
			return nil, fmt.Errorf("no source in %s: run it from the root of the repository", dir)
		}
	}
	return all, nil
}

// finder looks through one file.
type finder struct {
	name   string
	source []byte
	files  *token.FileSet
	// packages are the names of imported packages, which are no expressions.
	packages map[string]bool
	found    []*mutant
}

// find returns the mutants of one file.
func find(name string, source []byte) ([]*mutant, error) {
	f := finder{name: name, source: source, files: token.NewFileSet()}
	parsed, err := parser.ParseFile(f.files, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f.packages = map[string]bool{}
	for _, i := range parsed.Imports {
		f.packages[path.Base(strings.Trim(i.Path.Value, `"`))] = true
	}
	for _, decl := range parsed.Decls {
		if function, ok := decl.(*ast.FuncDecl); ok && function.Body != nil {
			f.inFunction(function)
		}
	}
	return f.found, f.marks(parsed)
}

func (f *finder) inFunction(d *ast.FuncDecl) {
	before := len(f.found)
	ast.Inspect(d.Body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			f.call(functionName(d), call)
		}
		return true
	})
	// A wait without another one in it is one of the driver, or of the CPU.
	if len(f.found) == before {
		f.body(d)
	}
}

// functionName is "Location.WaitOn".
func functionName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	t := d.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name + "." + d.Name.Name
	}
	return d.Name.Name
}

func (f *finder) call(function string, call *ast.CallExpr) {
	name, receiver := "", ast.Expr(nil)
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		name = fun.Name
	case *ast.SelectorExpr:
		name, receiver = fun.Sel.Name, fun.X
	}
	kind := f.kindOf(name, receiver, call)
	if kind == 0 {
		return
	}
	uses := call.Args
	if receiver != nil {
		uses = append([]ast.Expr{receiver}, uses...)
	}
	last := len(call.Args) - 1
	switch kind {
	case succeeds:
		if receiver == nil { // the function may be a variable
			uses = append([]ast.Expr{call.Fun}, uses...)
		}
		f.replace(function, call, "func() error { "+f.use(uses)+"return nil }()")
	case isDone:
		answer := "func() (bool, error) { " + f.use(uses) + "return true, nil }()"
		if name == "query" { // an argument, which may do more, as in once
			answer = "func() (bool, error) { _, err := query(); return true, err }()"
		}
		f.replace(function, call, answer)
	case isFree:
		f.replace(function, call, map[string]string{
			"Capturing": "func() (bool, error) { " + f.use(uses) + "return false, nil }()",
			"mayUse":    "func() bool { " + f.use(uses) + "return true }()",
		}[name])
	case once: // the query may do more: reserve memory, if there is some
		f.replace(function, call, "func() error { "+f.use(uses[:len(uses)-1])+"_, err := ("+f.text(call.Args[last])+")(); return err }()")
	case nothing:
		f.replace(function, call, "func() { "+f.use(uses)+"}()")
	case atOnce:
		f.replace(function, call, "func() { "+f.use(uses[:len(uses)-1])+"("+f.text(call.Args[last])+")() }()")
	case endsAtOnce:
		f.replace(function, call, "func() { "+f.use(uses[:len(uses)-1])+
			"one := "+f.text(call.Args[last])+"; if one.after != nil { one.after.letGo() }; if one.call != nil { one.call() } else { _ = one.end() } }()")
	case unproven:
		evidence := f.text(call.Args[last])
		use := "_ = " + evidence
		if name == "endAfter" { // it would let go of it
			use = evidence + ".letGo()"
		}
		f.replace(function, call, "func() error { "+use+"; return "+f.text(call.Fun)+"(nil) }()")
	case anywhere:
		f.replace(function, call.Args[last], f.defaultStream(call.Args[last]))
	}
}

// kindOf is how a call of this name is removed; 0, if it is none that waits.
func (f *finder) kindOf(name string, receiver ast.Expr, call *ast.CallExpr) removal {
	kind, last := waits[name], ""
	if len(call.Args) > 0 {
		last = f.text(call.Args[len(call.Args)-1])
	}
	switch {
	case name == "Query" && last != "": // about an address
		return 0
	case name == "UsedOn" && strings.HasPrefix(f.name, "interop/"): // of an array or a batch: it has an error
		return succeeds
	case name == "Wait" && last == "": // of a sync.Cond
		return 0
	case name == "poll" && receiver != nil: // the goroutine that asks for events
		return 0
	case name == "block" && receiver != nil: // takes memory: Fallback.block
		return 0
	case kind == endsAtOnce && (receiver == nil || !strings.HasSuffix(strings.ToLower(f.text(receiver)), "deferred") && f.text(receiver) != "d"):
		return 0
	case kind == unproven && (last == "nil" || len(call.Args) != 1 || !strings.HasPrefix(f.name, "internal/gpu/") && name == "endAfter"):
		return 0
	case kind == anywhere && !slices.Contains(streams, last):
		return 0
	}
	return kind
}

// defaultStream is the default stream as an expression that uses the one it replaces.
func (f *finder) defaultStream(stream ast.Expr) string {
	text := f.text(stream)
	if text != "s" && (strings.HasPrefix(f.name, "internal/gpu/") || strings.HasPrefix(f.name, "memory/cudaalloc/")) { // a handle
		return "0*" + text
	}
	return "func(device.Stream) device.Stream { return nil }(" + text + ")"
}

// use returns statements that only use the expressions: variables declared for the call must not be
// unused without it.
func (f *finder) use(list []ast.Expr) string {
	var b strings.Builder
	for _, e := range list {
		if id, ok := e.(*ast.Ident); ok && (id.Name == "nil" || f.packages[id.Name]) {
			continue
		}
		fmt.Fprintf(&b, "_ = %s; ", f.text(e))
	}
	return b.String()
}

func (f *finder) text(n ast.Node) string {
	return string(f.source[f.offset(n.Pos()):f.offset(n.End())])
}

func (f *finder) offset(p token.Pos) int { return f.files.Position(p).Offset }

// replace adds the mutant that has other text for a node.
func (f *finder) replace(function string, n ast.Node, text string) {
	removed := f.text(n)
	if call, ok := n.(*ast.CallExpr); ok {
		removed = f.short(call)
	} else {
		removed = "stream " + removed
	}
	f.found = append(f.found, &mutant{
		file: f.name, line: f.files.Position(n.Pos()).Line, function: function, removed: removed,
		instead: text, content: splice(f.source, f.offset(n.Pos()), f.offset(n.End()), text),
	})
}

// short is a call on one line: functions in it are left out.
func (f *finder) short(call *ast.CallExpr) string {
	var args []string
	for _, a := range call.Args {
		text := f.text(a)
		if _, ok := a.(*ast.FuncLit); ok {
			text = "func"
		}
		if one, _, ok := strings.Cut(text, "func() error {"); ok {
			text = one + "func}"
		}
		args = append(args, text)
	}
	return f.text(call.Fun) + "(" + strings.Join(args, ", ") + ")"
}

// body adds the mutant of a function that is a wait itself, and returns at once.
func (f *finder) body(d *ast.FuncDecl) {
	answers := map[removal]string{succeeds: "return nil", isDone: "return true, nil", isFree: "return false, nil", nothing: "return", once: "_, err := query(); return err"}
	answer := answers[waits[d.Name.Name]]
	switch name := functionName(d); {
	case answer == "", name == "Context.Query", name == "hostReader.Record", name == "Fallback.block", name == "Deferred.poll":
		return // all but the first have the names of waits, and are none
	}
	at := f.offset(d.Body.Lbrace) + 1
	f.found = append(f.found, &mutant{
		file: f.name, line: f.files.Position(d.Pos()).Line, function: functionName(d), removed: "all of it",
		instead: answer, content: splice(f.source, at, at, " "+answer+";"),
	})
}

func splice(source []byte, from, to int, text string) []byte {
	return slices.Concat(source[:from], []byte(text), source[to:])
}
