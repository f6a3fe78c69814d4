package cudasim

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// contradiction is a row of testdata/contradicted.txt: a rule that a GPU has contradicted, or "-", the rules that say
// now what it does, and the programs that have the mistake.
type contradiction struct {
	rule            string
	rules, programs []string
}

func contradictions(t *testing.T) (rows []contradiction) {
	t.Helper()
	text, err := os.ReadFile("testdata/contradicted.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.Split(line, "|")
		require.Len(t, cells, 3, line)
		rows = append(rows, contradiction{strings.TrimSpace(cells[0]), strings.Fields(cells[1]), strings.Fields(cells[2])})
	}
	return rows
}

var contradicted = regexp.MustCompile(`(?m)^FAIL (\w+): (?:manual|simulator)`)

// Each rule that the GPU contradicted has a row, with rules and programs that there are. A program that stands still, or
// that fails, is there for a row.
func TestContradictedRulesHavePrograms(t *testing.T) {
	t.Parallel()
	if *only != "" {
		t.Skip("there are not all rules and programs")
	}
	report, err := os.ReadFile("../docs/gpu/2026-11-27-H200.txt")
	require.NoError(t, err)
	missing := map[string]bool{}
	for _, found := range contradicted.FindAllSubmatch(report, -1) {
		missing[string(found[1])] = true
	}
	require.Len(t, missing, 47)
	rules, programs, used := map[string]bool{}, map[string]proof{}, map[string]bool{}
	for _, rule := range ofTheDriver(t, buildRules(t).list(t)) {
		rules[rule] = true
	}
	for _, p := range buildOrder(t).ordered(t) {
		programs[p.name] = p.proof
	}
	for _, row := range contradictions(t) {
		assert.True(t, row.rule == "-" || missing[row.rule], "%s: not contradicted, or twice in the table", row.rule)
		delete(missing, row.rule)
		assert.NotEmpty(t, row.rules, row.rule)
		for _, rule := range row.rules {
			assert.True(t, rules[rule], "%s: there is no rule %s", row.rule, rule)
		}
		for _, name := range row.programs {
			assert.Contains(t, programs, name, row.rule)
			assert.NotEqual(t, alwaysInOrder, programs[name], "%s has no mistake", name)
			used[name] = true
		}
	}
	assert.Empty(t, missing, "contradicted, and in no row")
	for name, proof := range programs {
		assert.True(t, used[name] || proof != heldUp && proof != failure, "%s: in no row", name)
	}
}
