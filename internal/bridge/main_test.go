package bridge

import (
	"fmt"
	"os"
	"testing"
)

// All tests together leave no C memory behind.
func TestMain(m *testing.M) {
	code := m.Run()
	if left := Blocks(); code == 0 && left != 0 {
		fmt.Fprintf(os.Stderr, "the tests left %d blocks of C memory\n", left)
		code = 1
	}
	os.Exit(code)
}
