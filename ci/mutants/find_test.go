package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const source = `package gpu

func (d *Device) f(s Stream, stream uintptr, ctx context.Context) error {
	if err := s.WaitEvent(e); err != nil {
		return err
	}
	done, err := e.Query()
	d.deferred.later(d.gpu, func() error { return nil })
	d.deferred.add(d.gpu, &deferral{after: e, end: func() error { return nil }})
	d.list.add(e, 1)
	if !d.mayUse(stream) {
		return m.endAfter(e)
	}
	_ = m.FreeAfter(e)
	_ = m.FreeAfter(nil)
	_ = d.cache.use(m)
	m.UsedOn(d)
	c.changed.Wait()
	_ = poll(ctx, e.reached)
	_, _ = d.Query(p)
	_ = ctx.Copy(ranges, stream)
	_ = m.Free(s)
	return m.Free(nil)
}

func (c *Context) QueryStream(stream uintptr) (bool, error) { return false, nil }
`

// The removed part of each kind of call, and its replacement.
func TestFind(t *testing.T) {
	found, err := find("internal/gpu/f.go", []byte(source))
	require.NoError(t, err)
	var got []string
	for _, m := range found {
		got = append(got, m.function+": "+m.removed+" => "+m.instead)
	}
	assert.Equal(t, []string{
		"Device.f: s.WaitEvent(e) => func() error { _ = s; _ = e; return nil }()",
		"Device.f: e.Query() => func() (bool, error) { _ = e; return true, nil }()",
		"Device.f: d.deferred.later(d.gpu, func) => func() { _ = d.deferred; _ = d.gpu; (func() error { return nil })() }()",
		"Device.f: d.deferred.add(d.gpu, &deferral{after: e, end: func}) => func() { _ = d.deferred; _ = d.gpu; " +
			"one := &deferral{after: e, end: func() error { return nil }}; if one.after != nil { one.after.letGo() }; " +
			"if one.call != nil { one.call() } else { _ = one.end() } }()",
		"Device.f: d.mayUse(stream) => func() bool { _ = d; _ = stream; return true }()",
		"Device.f: m.endAfter(e) => func() error { e.letGo(); return m.endAfter(nil) }()",
		"Device.f: m.FreeAfter(e) => func() error { _ = e; return m.FreeAfter(nil) }()",
		"Device.f: m.UsedOn(d) => func() { _ = m; _ = d; }()",
		"Device.f: poll(ctx, e.reached) => func() error { _ = ctx; _, err := (e.reached)(); return err }()",
		"Device.f: stream stream => 0*stream",
		"Device.f: stream s => func(device.Stream) device.Stream { return nil }(s)",
		"Context.QueryStream: all of it => return true, nil",
	}, got)
}

// Every mutant is valid Go.
func TestMutantsOfThisRepository(t *testing.T) {
	all, err := findAll("../..")
	require.NoError(t, err)
	assert.Greater(t, len(all), 250)
	for _, m := range all {
		_, err := parser.ParseFile(token.NewFileSet(), m.file, m.content, parser.SkipObjectResolution)
		assert.NoError(t, err, "%s: %s", m.site(), m.removed)
	}
}

// Marks replace a line, a statement or a condition.
func TestMarks(t *testing.T) {
	const source = `package p

func f() error {
	// mutant: a, b := 1, 3
	// mutant: a, b := 2, 2
	a, b := 1, 2
	for range a { // mutant: deleted
		g()
	}
	switch {
	case a > b || a < 0: // mutant: never
	}
	if err := g(); err != nil { // mutant: always
		return err
	}
	return nil
}
`
	found, err := find("f.go", []byte(source))
	require.NoError(t, err)
	var got []string
	for _, m := range found {
		_, err := parser.ParseFile(token.NewFileSet(), m.file, m.content, parser.SkipObjectResolution)
		assert.NoError(t, err)
		got = append(got, fmt.Sprintf("%d %s: %s => %s", m.line, m.function, m.removed, m.instead))
	}
	assert.Equal(t, []string{
		"6 f: a, b := 1, 2 => a, b := 1, 3", "6 f: a, b := 1, 2 => a, b := 2, 2", "7 f: for range a { => ",
		"11 f: case a > b || a < 0: => (a > b || a < 0) && false", "13 f: if err := g(); err != nil { => (err != nil) || true",
	}, got)
	assert.NotContains(t, string(found[2].content), "g()\n\t}\n\tswitch")
	for line, want := range map[string]string{"} // mutant: deleted": "no statement begins here", "g() // mutant: never": "no condition begins here"} {
		_, err := find("f.go", []byte("package p\n\nfunc f() {\n"+line+"\n"+strings.Repeat("}\n", strings.Count(line, "g"))))
		assert.ErrorContains(t, err, want, line)
	}
}

// A name of a wait that nothing has any more is one that was renamed, and is not found.
func TestWaitsOfThisRepository(t *testing.T) {
	called := map[string]bool{}
	for dir := range suites {
		files, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
		require.NoError(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, m := range regexp.MustCompile(`(\w+)\(`).FindAllSubmatch(source, -1) {
				called[string(m[1])] = true
			}
		}
	}
	for name := range waits {
		assert.True(t, called[name], "nothing is called %s", name)
	}
}
