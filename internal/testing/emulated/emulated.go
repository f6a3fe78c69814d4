// Package emulated is for tests that start programs and that may run under an emulator of another processor: it starts programs
// by the emulator too, and skips tests of what the emulator cannot do.
package emulated

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// variable is the name of the environment variable with the command of the emulator, such as "qemu-aarch64". It is not set where the
// processor runs the tests. ci/arm64/go sets it.
const variable = "CDEVICE_TEST_EMULATOR"

func emulator() string { return os.Getenv(variable) }

// Lack is something that the emulator cannot do: the name of a program in ci/arm64/lacks, which proves it.
type Lack string

// The things that qemu-user 7.2 cannot do. Another one, program_starts_itself, is the reason for [Command].
const (
	AddressSpaceIsGivenBack Lack = "address_space_is_given_back"
	CrashWithoutAWord       Lack = "crash_without_a_word"
	FaultAddressOfABusError Lack = "fault_address_of_a_bus_error"
	MremapOfSizeZero        Lack = "mremap_of_size_zero"
	ProcessIsTraced         Lack = "process_is_traced"
)

// Skip skips the test where it runs under the emulator, which has this lack.
func Skip(t testing.TB, lack Lack) {
	t.Helper()
	if emulator() != "" {
		t.Skipf("%s lacks what ci/arm64/lacks/%s.c does", emulator(), lack)
	}
}

// Slower returns how many times longer a program may take than where the processor runs it.
func Slower() int {
	if emulator() != "" {
		return 10
	}
	return 1
}

// SkipForeign skips the test where it runs under the emulator: it loads a library that is built for the test into a program of the
// system, such as python3, which is of another architecture.
func SkipForeign(t testing.TB, program string) {
	t.Helper()
	if emulator() != "" {
		t.Skipf("%s cannot load a library of %s", program, runtime.GOARCH)
	}
}

// Command is [exec.Command] for a program of the architecture that the test was compiled for, such as the test itself. Those of the
// system need no emulator.
func Command(program string, arguments ...string) *exec.Cmd {
	return CommandContext(context.Background(), program, arguments...)
}

// CommandContext is [exec.CommandContext] for such a program.
func CommandContext(ctx context.Context, program string, arguments ...string) *exec.Cmd {
	words := append(Words(program), arguments...)
	return exec.CommandContext(ctx, words[0], words[1:]...)
}

// Words returns the beginning of a command line that runs such a program.
func Words(program string) []string { return append(strings.Fields(emulator()), program) }

// Replace has a command of [Command] run another program.
func Replace(command *exec.Cmd, program string) {
	first := len(strings.Fields(emulator()))
	command.Args[first] = program
	if first == 0 {
		command.Path = program
	}
}

// Compiler is the command of the C compiler for such programs: that of $CC, or gcc.
func Compiler(arguments ...string) *exec.Cmd {
	words := append(strings.Fields(cmp.Or(os.Getenv("CC"), "gcc")), arguments...)
	return exec.Command(words[0], words[1:]...)
}
