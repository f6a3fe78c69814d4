package triton

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// enough is for any step of another process, which takes a second to start.
const enough = 60 * time.Second

// process is another process, and the lines that it prints.
type process struct {
	name  string
	group int // of processes, its own
	input io.WriteCloser
	life  *os.File // the process is killed when this is closed
	said  chan string

	mu     sync.Mutex
	others strings.Builder // lines that are not in said
}

// launch starts a process. Said are the lines that words matches, from the match on. The process and its children are killed by
// kill, and when this process ends.
func launch(words string, env []string, program string, arguments ...string) (*process, error) {
	// The shell leads a group of its own. It closes the output that is the process's.
	const script = `"$@" <&0 3<&- & exec <&- >&- 2>&-; read -u 3; kill -KILL 0`
	command := exec.Command("setsid", append([]string{"bash", "-c", script, "bash", program}, arguments...)...)
	command.Env = append(os.Environ(), env...)
	input, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	command.Stderr = command.Stdout
	ends, life, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ends.Close()
	command.ExtraFiles = []*os.File{ends}
	if err := command.Start(); err != nil {
		life.Close()
		return nil, err
	}
	p := &process{name: filepath.Base(program), group: command.Process.Pid, input: input, life: life, said: make(chan string, 256)}
	go func() {
		p.read(output, regexp.MustCompile(words))
		life.Close()
		_ = command.Wait() // killed by itself
		close(p.said)
	}()
	return p, nil
}

// read reads until the process, and each one that it has started, has closed its output.
func (p *process) read(output io.Reader, words *regexp.Regexp) {
	for lines := bufio.NewReader(output); ; {
		line, err := lines.ReadString('\n')
		if found := words.FindStringIndex(line); found != nil {
			p.said <- strings.TrimSpace(line[found[0]:])
		} else {
			p.mu.Lock()
			p.others.WriteString(line)
			p.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

// await returns the rest of the next line that begins with the word.
func (p *process) await(word string) (rest string, err error) {
	what := "has ended"
	for timeout := time.After(enough); ; {
		select {
		case line, ok := <-p.said:
			if rest, found := strings.CutPrefix(line, word+" "); found {
				return rest, nil
			}
			if ok {
				continue
			}
		case <-timeout:
			what = "waits"
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		return "", fmt.Errorf("%s %s, and has not said %q:\n%s", p.name, what, word, p.others.String())
	}
}

// expect is await in a test.
func (p *process) expect(t *testing.T, word string) string {
	t.Helper()
	rest, err := p.await(word)
	require.NoError(t, err)
	return rest
}

// kill kills a process and its children, and waits for their end. It may be called twice.
func (p *process) kill() {
	p.life.Close()
	p.awaitEnd()
}

// awaitEnd waits for the end of a process and its children.
func (p *process) awaitEnd() {
	for range p.said {
	}
	for p.runs() { // which have closed their output, and may still have memory open
		time.Sleep(time.Millisecond)
	}
}

// runs reports whether a process of the group has not ended. One that nothing waits for has.
func (p *process) runs() bool {
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	return slices.ContainsFunc(all, func(name string) bool {
		text, _ := os.ReadFile(name)
		state := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // then its parent and its group
		return len(state) > 2 && state[2] == strconv.Itoa(p.group) && state[0] != "Z" && state[0] != "X"
	})
}
