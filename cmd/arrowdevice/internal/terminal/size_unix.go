//go:build unix

package terminal

import (
	"os"

	"golang.org/x/sys/unix"
)

// size returns the columns of a terminal, and false for another file.
func size(f *os.File) (columns int, ok bool) {
	window, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, false
	}
	return int(window.Col), true
}
