package ci

import (
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// block is Go code in a page or in a comment.
type block struct {
	file string
	line int // of the first line of the code, or of the comment that has it
	code string
}

// Every Go block of every page, and of every comment on a package, type or function, is valid:
// omitted parts are completed, and the rest is checked against this module.
func TestGoBlocksCompile(t *testing.T) {
	checker := newBlockChecker(t)
	found := map[string]int{}
	for _, b := range append(blocksOfPages(t), blocksOfComments(t)...) {
		found[filepath.Ext(b.file)]++
		if strings.HasPrefix(b.file, "memory/cudaalloc/gorgonia/") {
			continue // its package needs cuda.h; make gorgonia compiles its examples
		}
		if b.file == "docs/cookbook.md" {
			continue // programs, which package examples compiles, runs and compares
		}
		for _, err := range checker.check(b) {
			t.Error(err)
		}
	}
	assert.GreaterOrEqual(t, found[".md"], 5, "blocks of pages")
	assert.GreaterOrEqual(t, found[".go"], 8, "blocks of comments")
}

// eachFile calls do with the path of every file of the tree that has this extension.
func eachFile(t *testing.T, extension string, do func(path, content string)) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(".."), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path == "build" || len(path) > 1 && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != extension:
			return nil
		}
		content, err := os.ReadFile(filepath.Join("..", path))
		do(path, string(content))
		return err
	})
	require.NoError(t, err)
}

func blocksOfPages(t *testing.T) (blocks []block) {
	eachFile(t, ".md", func(path, content string) {
		b := block{}
		for i, line := range strings.SplitAfter(content, "\n") {
			switch fence := strings.TrimSpace(line); {
			case b.line == 0 && fence == "```go":
				b = block{file: path, line: i + 2}
			case b.line != 0 && fence == "```":
				blocks = append(blocks, b)
				b = block{}
			case b.line != 0:
				b.code += line
			}
		}
		require.Zero(t, b.line, "%s:%d: the block has no end", path, b.line)
	})
	return blocks
}

// notGo begins the indented blocks of comments that are something else: commands, texts of
// errors, tables.
var notGo = regexp.MustCompile(`^(go|make|python) |^CGO_|^export CGO_|^RecordBatch: 12 leaks|^device 4 KiB |^cdevice: |^to do this  |^Export, ExportSchema  |^the beginning\.\.\.|^\[\w+\]  |^Go  |^Arrow  |^\w+ = arrowdevice\.`)

func blocksOfComments(t *testing.T) (blocks []block) {
	eachFile(t, ".go", func(path, content string) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, content, parser.ParseComments)
		require.NoError(t, err)
		for _, doc := range docs(file) {
			var p comment.Parser
			for _, part := range p.Parse(doc.Text()).Content {
				if code, ok := part.(*comment.Code); ok && !notGo.MatchString(code.Text) {
					blocks = append(blocks, block{path, files.Position(doc.Pos()).Line, code.Text})
				}
			}
		}
	})
	return blocks
}

// docs are the comments on a file's package, types, functions, constants and variables. That on
// an import is C.
func docs(file *ast.File) (all []*ast.CommentGroup) {
	all = append(all, file.Doc)
	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			all = append(all, d.Doc)
		case *ast.GenDecl:
			if d.Tok == token.IMPORT {
				continue
			}
			all = append(all, d.Doc)
			for _, spec := range d.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok {
					all = append(all, s.Doc)
				}
			}
		}
	}
	return all
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.file, b.line) }
