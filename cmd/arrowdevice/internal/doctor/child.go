package doctor

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// outcome is how a child process ended.
type outcome struct {
	timedOut bool
	stuck    bool   // it could not even be killed
	died     string // how it ended, unless it exited with 0: "signal: segmentation fault"
	stderr   string // what it wrote there, or the beginning and the end of it
}

// grace is how long the files of a process that has ended, or was killed, may stay open.
const grace = 500 * time.Millisecond

// killProcesses ends a child and what it has started. A test replaces it by one that fails.
var killProcesses = killGroup

// follow runs a child process, and calls line for each line that it prints. Between two lines may
// pass at most the timeout. It returns soon after that, or after ctx is done, even if the process
// hangs in the kernel, or has left processes behind that hold its files.
func follow(ctx context.Context, cmd *exec.Cmd, timeout time.Duration, line func([]byte)) (outcome, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return outcome{}, err
	}
	defer r.Close()
	var stderr ends
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = w, &stderr, grace
	ownGroup(cmd)
	err = cmd.Start()
	w.Close()
	if err != nil {
		return outcome{}, err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	lines := make(chan []byte)
	go func() {
		defer close(lines)
		for s := bufio.NewReader(r); ; {
			text, err := s.ReadBytes('\n')
			if text = bytes.TrimSpace(text); len(text) > 0 {
				lines <- text
			}
			if err != nil {
				return
			}
		}
	}()

	var o outcome
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	var end *time.Timer // closes r, where a grandchild holds the other end
	closeSoon := func() {
		if end == nil {
			end = time.AfterFunc(grace, func() { r.Close() })
		}
	}
	var stuck <-chan time.Time
	kill := func() {
		killProcesses(cmd)
		closeSoon()
		stuck = time.After(4 * grace)
	}
	done, exit, late := ctx.Done(), exited, timer.C
	for lines != nil || exit != nil {
		select {
		case text, ok := <-lines:
			if !ok {
				lines = nil
				continue
			}
			timer.Reset(timeout)
			line(text)
		case err := <-exit:
			o.died = death(err)
			exit, late, stuck = nil, nil, nil
			closeSoon()
		case <-late:
			o.timedOut, late = true, nil
			kill()
		case <-done:
			done = nil
			kill()
		case <-stuck:
			o.stuck, exit = true, nil
		}
	}
	if end != nil {
		end.Stop()
	}
	o.stderr = stderr.String()
	return o, ctx.Err()
}

func death(err error) string {
	if err == nil || errors.Is(err, exec.ErrWaitDelay) {
		return ""
	}
	return err.Error()
}

// ends keeps the beginning and the end of what is written to it.
type ends struct {
	mu         sync.Mutex
	head, tail []byte
}

// kept is how much of either is kept.
const kept = 2000

func (e *ends) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := min(len(p), kept-len(e.head))
	e.head = append(e.head, p[:n]...)
	e.tail = append(e.tail, p[n:]...)
	if over := len(e.tail) - kept; over > 0 {
		e.tail = append([]byte(nil), e.tail[over:]...)
	}
	return len(p), nil
}

func (e *ends) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.ToValidUTF8(strings.TrimSpace(string(e.head)+string(e.tail)), "?")
}

// lastLine returns the last line of a text.
func lastLine(text string) string {
	return text[strings.LastIndexByte(text, '\n')+1:]
}
