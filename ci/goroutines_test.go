package ci

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tests of a package that starts goroutines, itself or in its tests, fail if one of them can never end.
func TestGoroutinesThatLeakFailTheirPackage(t *testing.T) {
	found := 0
	for path := range packages(t) {
		tests, err := filepath.Glob(filepath.Join("..", path, "*_test.go"))
		require.NoError(t, err)
		if len(tests) == 0 {
			continue
		}
		starts, checks := goroutinesIn(t, path)
		if starts {
			found++
			assert.True(t, checks, "%s starts goroutines: write func TestMain(m *testing.M) { os.Exit(goroutineleak.Run(m)) }", path)
		}
	}
	require.NotZero(t, found)
}

// goroutinesIn reports whether the files of a package start goroutines, and whether they call goroutineleak.Run.
func goroutinesIn(t *testing.T, path string) (starts, checks bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", path, "*.go"))
	require.NoError(t, err)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				starts = true
			case *ast.SelectorExpr:
				of, _ := n.X.(*ast.Ident)
				starts = starts || n.Sel.Name == "Go" // of a sync.WaitGroup or an errgroup.Group
				checks = checks || n.Sel.Name == "Run" && of != nil && of.Name == "goroutineleak" && strings.HasSuffix(name, "_test.go")
			}
			return true
		})
	}
	return starts, checks
}
