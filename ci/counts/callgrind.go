package main

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

var object = regexp.MustCompile(`^ob=\((\d+)\)(?: (.*))?$`)
var called = regexp.MustCompile(`^cob=\((\d+)\) (.*)$`)

// instructions returns how many of a dump of callgrind are those of a program itself. Its libraries are left out: that
// of C has other functions for other processors, and the simulated driver is not what is measured.
func instructions(dump io.Reader, program string) (total int64, err error) {
	names, inProgram, afterCall := map[string]string{}, false, false
	lines := bufio.NewScanner(dump)
	for lines.Scan() {
		line := lines.Text()
		if m := called.FindStringSubmatch(line); m != nil {
			names[m[1]] = m[2]
		} else if m := object.FindStringSubmatch(line); m != nil {
			if m[2] != "" {
				names[m[1]] = m[2]
			}
			inProgram = names[m[1]] == program
		} else if strings.HasPrefix(line, "calls=") {
			afterCall = true // the next line has the cost of the function that is called
		} else if line != "" && strings.ContainsRune("0123456789+-*", rune(line[0])) {
			n, err := cost(line)
			if err != nil {
				return 0, err
			}
			if inProgram && !afterCall {
				total += n
			}
			afterCall = false
		}
	}
	return total, lines.Err()
}

// cost is the second number of a line: the first one is the line of the source.
func cost(line string) (int64, error) {
	fields := strings.Fields(line)
	if len(fields) != 2 {
		return 0, fmt.Errorf("counts: callgrind wrote %q", line)
	}
	return strconv.ParseInt(fields[1], 10, 64)
}
