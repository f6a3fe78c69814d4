package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"strings"
)

// side is a server and its client, in a process each.
type side struct {
	name           string
	gpu            bool // it has batches in memory of a GPU
	server, client *process
}

// process is a process of a side. Each line of its input is answered by a line.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func startSides() []*side {
	all := []*side{startSide("arrowdevice", "ours"), startSide(plainName, "plain")}
	if *python != "" {
		server := start(*python, "bench/flight/peer.py", "serve")
		client := start(*python, "bench/flight/peer.py", "client", server.line())
		all = append(all, &side{name: pyArrowName, server: server, client: client})
	}
	return all
}

func startSide(name, kind string) *side {
	server := startSelf("-role", "serve-"+kind)
	return &side{name, true, server, startSelf("-role", "client-"+kind, "-address", server.line())}
}

func startSelf(args ...string) *process {
	if *profile != "" {
		args = append(args, "-cpuprofile", *profile+args[1])
	}
	return start("/proc/self/exe", args...)
}

func start(name string, args ...string) *process {
	p := &process{cmd: exec.Command(name, args...)}
	p.cmd.Stderr = os.Stderr
	var err error
	p.in, err = p.cmd.StdinPipe()
	check(err)
	out, err := p.cmd.StdoutPipe()
	check(err)
	p.out = bufio.NewScanner(out)
	check(p.cmd.Start())
	return p
}

func (p *process) line() string {
	if !p.out.Scan() {
		log.Fatalf("%s has ended", strings.Join(p.cmd.Args, " "))
	}
	return p.out.Text()
}

// ask sends a line, and decodes the answer.
func (p *process) ask(question any) (answer measured) {
	text, err := json.Marshal(question)
	check(err)
	_, err = fmt.Fprintf(p.in, "%s\n", text)
	check(err)
	check(json.Unmarshal([]byte(p.line()), &answer))
	return answer
}

// measured are nanoseconds. A server, which is asked for nothing in particular, answers with its CPU time so far.
type measured struct {
	NS  int64 `json:"ns"`
	CPU int64 `json:"cpu"`
}

// turn returns the nanoseconds of a load, and those of the processors.
func (s *side) turn(l load) (elapsed, cpu float64) {
	before := s.server.ask(nil)
	client := s.client.ask(l)
	after := s.server.ask(nil)
	return float64(client.NS), float64(client.CPU + after.CPU - before.CPU)
}

// end ends both processes.
func (s *side) end() {
	for _, p := range []*process{s.client, s.server} {
		check(p.in.Close())
		check(p.cmd.Wait())
	}
}
