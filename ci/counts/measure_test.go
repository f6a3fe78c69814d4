package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func content(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

// dump has 500 instructions of the program, 400 of them in a function that it calls, and 70 of the C library, which it
// calls, too.
const dump = `# callgrind format
version: 1
positions: line
events: Ir
summary: 570

ob=(5) /x/here
fl=(1) ???
fn=(1) main.export
0 60
cob=(3) /lib/libc.so.6
cfn=(9) malloc
calls=2 0
0 70
cfn=(2) main.fill
calls=1 0
* 400
+3 40

ob=(3)
fn=(9)
0 70

ob=(5)
fn=(2) main.fill
-3 400
`

func TestInstructionsOfTheProgramItself(t *testing.T) {
	n, err := instructions(strings.NewReader(dump), "/x/here")
	require.NoError(t, err)
	assert.EqualValues(t, 500, n)
	n, err = instructions(strings.NewReader(dump), "/lib/libc.so.6")
	require.NoError(t, err)
	assert.EqualValues(t, 70, n)
	_, err = instructions(strings.NewReader("ob=(1) /x/here\n0 1 2 3\n"), "/x/here")
	assert.ErrorContains(t, err, "0 1 2 3")
}

func TestRoundsAreRead(t *testing.T) {
	r, err := parseRound("export, 1 col\t500\t1\t144\t0\t2.01\t1\t0\t0")
	require.NoError(t, err)
	assert.Equal(t, round{"export, 1 col", 500, counts{0, 1, 144, 0, 2.01, 1}}, r)
	for _, line := range []string{"", "export\t500\t1", "export\tx\t1\t144\t0\t2\t1\t0\t0", "export\t500\t1\tx\t0\t2\t1\t0\t0"} {
		_, err := parseRound(line)
		assert.Error(t, err, line)
	}
}
