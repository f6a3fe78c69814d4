package doctor

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// followed runs a script, and returns its lines.
func followed(t *testing.T, ctx context.Context, timeout time.Duration, script string) (outcome, string, error) {
	t.Helper()
	var lines []string
	start := time.Now()
	o, err := follow(ctx, exec.Command("sh", "-c", script), timeout, func(line []byte) { lines = append(lines, string(line)) })
	t.Log(time.Since(start))
	assert.Less(t, time.Since(start), 20*time.Second)
	return o, strings.Join(lines, "|"), err
}

func TestFollow(t *testing.T) {
	for name, c := range map[string]struct {
		script, lines string
		want          outcome
	}{
		"lines":              {"echo a; echo; printf b", "a|b", outcome{}},
		"status":             {"echo a; echo why >&2; exit 3", "a", outcome{died: "exit status 3", stderr: "why"}},
		"signal":             {"kill -SEGV $$", "", outcome{died: "signal: segmentation fault"}},
		"hang":               {"echo a; sleep 100", "a", outcome{timedOut: true, died: "signal: killed"}},
		"hang in background": {"sleep 100 & echo a; wait", "a", outcome{timedOut: true, died: "signal: killed"}},
		"slow but alive":     {"for i in 1 2 3 4; do echo $i; sleep 1; done", "1|2|3|4", outcome{}},
		// What it leaves behind holds its files, in a group of its own.
		"left behind":     {"setsid sleep 10 & echo a", "a", outcome{}},
		"closes its file": {"echo a; exec >&- 2>&-; sleep 0.3; exit 4", "a", outcome{died: "exit status 4"}},
	} {
		t.Run(name, func(t *testing.T) {
			o, lines, err := followed(t, context.Background(), 2*time.Second, c.script)
			require.NoError(t, err)
			assert.Equal(t, c.lines, lines)
			assert.Equal(t, c.want, o)
		})
	}
}

func TestFollowIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var cancelled time.Time
	time.AfterFunc(200*time.Millisecond, func() { cancelled = time.Now(); cancel() })
	_, lines, err := followed(t, ctx, time.Minute, "echo a; sleep 100")
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, "a", lines)
	assert.Less(t, time.Since(cancelled), 2*time.Second)
}

// A process that hangs in the kernel cannot be killed. It is left behind.
func TestFollowLeavesTheUnkillable(t *testing.T) {
	var left *exec.Cmd
	killProcesses = func(cmd *exec.Cmd) { left = cmd }
	t.Cleanup(func() {
		killProcesses = killGroup
		killGroup(left)
	})
	o, lines, err := followed(t, context.Background(), time.Second, "echo a; sleep 100")
	require.NoError(t, err)
	assert.Equal(t, "a", lines)
	assert.Equal(t, outcome{timedOut: true, stuck: true}, o)
}

func TestMuchOutputIsCut(t *testing.T) {
	o, _, err := followed(t, context.Background(), 10*time.Second, "echo first >&2; yes 2>/dev/null | head -c 1000000 >&2; echo last >&2; exit 1")
	require.NoError(t, err)
	assert.Less(t, len(o.stderr), 3*kept)
	assert.True(t, strings.HasPrefix(o.stderr, "first"))
	assert.True(t, strings.HasSuffix(o.stderr, "last"))
	assert.Equal(t, "last", lastLine(o.stderr))
}
