package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"strings"
)

// mark begins a comment that describes a mutant of its line, or, if it has a line of its own, of the next line that is
// no mark.
const mark = "// mutant: "

// marks adds the mutants that comments describe. "deleted" is without the statement that begins on the line; "never" and
// "always" fix the condition of its if, for or case. Other text takes the place of the line.
func (f *finder) marks(file *ast.File) error {
	for _, group := range file.Comments {
		for _, c := range group.List {
			if text, ok := strings.CutPrefix(c.Text, mark); ok {
				if err := f.marked(file, c, text); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (f *finder) marked(file *ast.File, c *ast.Comment, text string) error {
	lines := strings.SplitAfter(string(f.source), "\n")
	line := f.files.Position(c.Pos()).Line
	for strings.HasPrefix(strings.TrimSpace(lines[line-1]), mark) {
		line++
	}
	code, _, _ := strings.Cut(lines[line-1], mark)
	from := f.offset(f.files.File(c.Pos()).LineStart(line)) // of the line
	to := from + len(strings.TrimRight(code, " \n"))

	statement, condition := statementAt(f.files, file, line)
	switch {
	case statement == nil:
		return fmt.Errorf("%s:%d: no statement begins here", f.name, line)
	case text == "deleted":
		from, to, text = f.offset(statement.Pos()), f.offset(statement.End()), ""
	case text == "never" || text == "always":
		if condition == nil {
			return fmt.Errorf("%s:%d: no condition begins here", f.name, line)
		}
		from, to = f.offset(condition.Pos()), f.offset(condition.End())
		text = map[string]string{"never": "(" + f.text(condition) + ") && false", "always": "(" + f.text(condition) + ") || true"}[text]
	}
	f.found = append(f.found, &mutant{
		file: f.name, line: line, function: functionAt(f.files, file, line), removed: strings.TrimSpace(code), instead: text,
		content: splice(f.source, from, to, text),
	})
	return nil
}

// statementAt returns the outermost statement that begins on a line, and its condition, if it has one.
func statementAt(files *token.FileSet, file *ast.File, line int) (statement ast.Stmt, condition ast.Expr) {
	ast.Inspect(file, func(n ast.Node) bool {
		s, ok := n.(ast.Stmt)
		if _, block := n.(*ast.BlockStmt); !ok || block || statement != nil || files.Position(n.Pos()).Line != line {
			return statement == nil
		}
		statement = s
		switch s := s.(type) {
		case *ast.IfStmt:
			condition = s.Cond
		case *ast.ForStmt:
			condition = s.Cond
		case *ast.CaseClause:
			condition = s.List[0]
		}
		return false
	})
	return statement, condition
}

// functionAt returns the name of the function that a line is in.
func functionAt(files *token.FileSet, file *ast.File, line int) string {
	for _, decl := range file.Decls {
		if d, ok := decl.(*ast.FuncDecl); ok && files.Position(d.Pos()).Line <= line && line <= files.Position(d.End()).Line {
			return functionName(d)
		}
	}
	return ""
}
