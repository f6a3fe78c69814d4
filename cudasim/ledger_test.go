package cudasim

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim/internal/ledger"
	"github.com/arrowdevice/arrowdevice/internal/testing/emulated"
)

// inLedger is what the ledger of a process with that report has, apart from the process.
func inLedger(r Report) ledger.Machine {
	return ledger.Machine{
		Violations: slices.Sorted(slices.Values(r.Violations)), Leaks: slices.Sorted(slices.Values(r.Leaks)), Kept: len(r.Kept),
	}
}

// readLedgers returns the content of a folder in the form of inLedger.
func readLedgers(t *testing.T, folder string) []ledger.Machine {
	t.Helper()
	machines, err := ledger.Read(folder)
	require.NoError(t, err)
	for i := range machines {
		m := &machines[i]
		m.Process, m.Program = 0, ""
		if m.MoreViolations > 0 {
			m.Violations = append(m.Violations, fmt.Sprintf("... and %d more", m.MoreViolations))
			m.MoreViolations = 0
		}
		m.Repeated = 0 // they are in the texts
		slices.Sort(m.Violations)
		slices.Sort(m.Leaks)
	}
	return machines
}

// situations builds testdata/ledger, which is linked to the files of the simulator.
func situations(t *testing.T) (program string) {
	t.Helper()
	cc, err := theCompiler()
	require.NoError(t, err)
	program = filepath.Join(t.TempDir(), "situations")
	simulator := filepath.Join(t.TempDir(), object)
	require.NoError(t, compile(simulator, slices.Concat(cc.command, flags, []string{"-O0"})))
	args := slices.Concat(cc.command[1:], flags, []string{"-Werror", "-o", program, "testdata/ledger/main.c", simulator, "-ldl"})
	out, err := exec.Command(cc.command[0], args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// TestLedger compares the ledger of a process that is killed with the report that it had printed.
func TestLedger(t *testing.T) {
	t.Parallel()
	program := situations(t)
	for _, c := range []struct {
		name                    string
		violations, leaks, kept int
		moreViolations          int
		moreLeaks               bool
	}{
		{name: "none"},
		{name: "kept", leaks: 3, kept: 3},
		{name: "not_kept_any_more", leaks: 3},
		{name: "kept_and_released", leaks: 1},
		{name: "full", leaks: 17001, kept: 1000, moreLeaks: true},
		{name: "full_and_empty_again", leaks: 2},
		{name: "full_of_many_places", leaks: 17301, moreLeaks: true},
		{name: "many_violations", violations: 150, leaks: 1},
		{name: "many_kinds_of_violations", violations: 450, leaks: 1, moreViolations: 150},
		{name: "forgotten_violations", violations: 1, leaks: 1},
		{name: "shut_down", violations: 1, leaks: 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			cmd := emulated.CommandContext(ctx, program, c.name)
			cmd.Env = append(os.Environ(), "CUDASIM=stacks=1,ledger="+folder)
			out, err := cmd.Output()
			assert.ErrorContains(t, err, "killed")
			var report Report
			require.NoError(t, json.Unmarshal(out, &report), "%s", out)

			machines, err := ledger.Read(folder)
			require.NoError(t, err)
			require.Len(t, machines, 1)
			m := machines[0]
			assert.Equal(t, cmd.ProcessState.Pid(), m.Process)
			assert.Equal(t, "situations", m.Program)
			assert.Equal(t, c.violations, m.CountViolations())
			assert.Equal(t, c.moreViolations, m.MoreViolations)
			assert.Equal(t, c.leaks, m.CountLeaks())
			assert.Equal(t, c.kept, m.Kept)
			assert.Equal(t, c.moreLeaks, len(m.MoreLeaks) > 0)
			if c.moreLeaks {
				assert.Len(t, report.Leaks, c.leaks)
				all := map[string]bool{} // assert.Subset compares each with each, for half a minute
				for _, leak := range report.Leaks {
					all[leak] = true
				}
				for _, leak := range m.Leaks {
					assert.True(t, all[leak], leak)
				}
			} else {
				assert.Equal(t, []ledger.Machine{inLedger(report)}, readLedgers(t, folder))
			}
		})
	}
}
