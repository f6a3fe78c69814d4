package triton

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
)

// The program of the cookbook, which knows nothing but an address and rows, in memory of the host and of a GPU.
func TestExample(t *testing.T) {
	direct, proxied := system.connect(t), cuda(t).connect(t)
	driver, err := cudasim.Build()
	require.NoError(t, err)
	program := filepath.Join(t.TempDir(), "triton")
	out, err := exec.Command("go", "build", "-o", program, "../../examples/triton").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for want, arguments := range map[string][]string{
		"n: [2 8]\ns: [\"ONE\" \"\"]\n": {direct.address, "texts", `[{"n": 1, "s": "one"}, {"n": 7, "s": ""}]`},
		"n: []\ns: []\n":                {direct.address, "texts", `[]`},
		`columns["s"].NullCount = 1`:    {direct.address, "texts", `[{"n": 1}]`},
		"the model failed":              {direct.address, "fail", `[{"a": 1, "b": 2, "c": 3, "x": 4}]`},
		"'none' is not found":           {direct.address, "none", `[]`},
		"a: [[2] [3]]\nb: [4 5]\n":      {"-gpu=1", proxied.address, "vectors", `[{"a": [1], "b": 3}, {"a": [2], "b": 4}]`},
		`columns["s"].type = utf8`:      {"-gpu=0", proxied.address, "texts", `[{"n": 1, "s": "one"}]`},
	} {
		run := exec.Command(program, arguments...)
		run.Env = append(os.Environ(), "CDEVICE_CUDA_DRIVER="+driver, "CUDASIM=devices=2")
		out, err := run.CombinedOutput()
		assert.Equal(t, !strings.HasSuffix(want, "\n"), err != nil, "%s", out)
		assert.Contains(t, string(out), want)
	}
}
