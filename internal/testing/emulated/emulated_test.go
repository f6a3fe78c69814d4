package emulated

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each lack has its proof, and each proof a test that it excuses.
func TestLacksAreProven(t *testing.T) {
	files, err := filepath.Glob("../../../ci/arm64/lacks/*.c")
	require.NoError(t, err)
	var proven []Lack
	for _, file := range files {
		proven = append(proven, Lack(strings.TrimSuffix(filepath.Base(file), ".c")))
	}
	lacks := []Lack{AddressSpaceIsGivenBack, CrashWithoutAWord, FaultAddressOfABusError, MremapOfSizeZero, ProcessIsTraced, "program_starts_itself"}
	assert.Equal(t, lacks, proven)
	assert.True(t, slices.IsSorted(lacks))
}

func TestProgramsAreStartedByTheEmulator(t *testing.T) {
	t.Setenv(variable, "")
	assert.Equal(t, []string{"program", "argument"}, Command("program", "argument").Args)
	t.Setenv(variable, "emulator -option")
	assert.Equal(t, []string{"emulator", "-option", "program", "argument"}, Command("program", "argument").Args)
}

func TestReplacedProgram(t *testing.T) {
	for _, emulator := range []string{"", "emulator -option"} {
		t.Setenv(variable, emulator)
		command, want := Command("program", "argument"), Command("/another", "argument")
		Replace(command, "/another")
		assert.Equal(t, want.Args, command.Args)
		assert.Equal(t, want.Path, command.Path)
	}
}

func TestCompilerMayBeSeveralWords(t *testing.T) {
	t.Setenv("CC", "")
	assert.Equal(t, []string{"gcc", "-c"}, Compiler("-c").Args)
	t.Setenv("CC", "ccache cc")
	assert.Equal(t, []string{"ccache", "cc", "-c"}, Compiler("-c").Args)
}
