package doctor

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// followed runs a script, and returns its lines. It is interrupted after the line "interrupt". A script that
// sleeps for 1000 seconds must be ended.
func followed(t *testing.T, timeout time.Duration, script string) (o outcome, lines string, err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all []string
	within.Limit(t, time.Minute, script, func() error {
		o, err = follow(ctx, exec.Command("sh", "-c", script), timeout, func(line []byte) {
			if all = append(all, string(line)); string(line) == "interrupt" {
				cancel()
			}
		})
		return nil
	})
	return o, strings.Join(all, "|"), err
}

func TestFollow(t *testing.T) {
	for name, c := range map[string]struct {
		script, lines string
		want          outcome
	}{
		"lines":              {"echo a; echo; printf b", "a|b", outcome{}},
		"status":             {"echo a; echo why >&2; exit 3", "a", outcome{died: "exit status 3", stderr: "why"}},
		"signal":             {"kill -SEGV $$", "", outcome{died: "signal: segmentation fault"}},
		"hang":               {"echo a; sleep 1000", "a", outcome{timedOut: true, died: "signal: killed"}},
		"hang in background": {"sleep 1000 & echo a; wait", "a", outcome{timedOut: true, died: "signal: killed"}},
		"slow but alive":     {"for i in 1 2 3 4; do echo $i; sleep 1; done", "1|2|3|4", outcome{}},
		// What it leaves behind holds its files, in a group of its own.
		"left behind":      {"setsid sleep 10 & echo a", "a", outcome{}},
		"closes its file":  {"echo a; exec >&- 2>&-; sleep 0.3; exit 4", "a", outcome{died: "exit status 4"}},
		"closes and hangs": {"echo a; exec >&- 2>&-; sleep 1000", "a", outcome{timedOut: true, died: "signal: killed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, lines, err := followed(t, 3*time.Second, c.script)
			require.NoError(t, err)
			assert.Equal(t, c.lines, lines)
			assert.Equal(t, c.want, o)
		})
	}
}

func TestFollowIsCancelled(t *testing.T) {
	o, lines, err := followed(t, time.Hour, "echo a; echo interrupt; sleep 1000")
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, "a|interrupt", lines)
	assert.Equal(t, outcome{died: "signal: killed"}, o)
}

// A process that hangs in the kernel cannot be killed. It is left behind.
func TestFollowLeavesTheUnkillable(t *testing.T) {
	var left *exec.Cmd
	killProcesses = func(cmd *exec.Cmd) { left = cmd }
	t.Cleanup(func() {
		killProcesses = killGroup
		killGroup(left)
	})
	o, lines, err := followed(t, time.Hour, "echo interrupt; sleep 1000")
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, "interrupt", lines)
	assert.Equal(t, outcome{stuck: true}, o)
}

func TestMuchOutputIsCut(t *testing.T) {
	o, _, err := followed(t, time.Hour, "echo first >&2; yes 2>/dev/null | head -c 1000000 >&2; echo last >&2; exit 1")
	require.NoError(t, err)
	assert.Less(t, len(o.stderr), 3*kept)
	assert.True(t, strings.HasPrefix(o.stderr, "first"))
	assert.True(t, strings.HasSuffix(o.stderr, "last"))
	assert.Equal(t, "last", lastLine(o.stderr))
}
