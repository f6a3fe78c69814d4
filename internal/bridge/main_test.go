package bridge

import (
	"fmt"
	"os"
	"testing"
)

// All tests together leave no C memory behind.
func TestMain(m *testing.M) {
	code := m.Run()
	if blocks, trees := Blocks(), Trees(); code == 0 && (blocks != 0 || trees != 0) {
		fmt.Fprintf(os.Stderr, "the tests left %d blocks of C memory, %d of trees\n", blocks, trees)
		code = 1
	}
	os.Exit(code)
}
