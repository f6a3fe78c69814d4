package ci

import (
	"fmt"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The classifiers of the Python package, which integration/pythons.sh reads, are the versions in which it runs. Each other
// place that names the oldest or the newest agrees with them.
func TestVersionsOfPythonAgree(t *testing.T) {
	minors := regexp.MustCompile(`"Programming Language :: Python :: 3\.(\d+)"`).FindAllStringSubmatch(read(t, "../python/pyproject.toml"), -1)
	require.NotEmpty(t, minors)
	oldest, newest := minors[0][1], minors[len(minors)-1][1]
	for i, minor := range minors[1:] {
		assert.Equal(t, number(t, minors[i][1])+1, number(t, minor[1]), "the classifiers are in order, and none is left out")
	}
	for file, text := range map[string]string{
		"../python/pyproject.toml":               `requires-python = ">=3.%s"`,
		"../python/arrowdevice/__init__.py":      "sys.version_info < (3, %s)",
		"../python/arrowdevice/build/project.py": `PYTHON = ">=3.%s"`,
		"../python/arrowdevice/build/tags.py":    `INTERPRETER = "cp3%s-abi3"`,
	} {
		assert.Contains(t, read(t, file), fmt.Sprintf(text, oldest), file)
	}
	for _, file := range []string{"../README.md", "../CHANGELOG.md", "../docs/python.md", "../python/README.md"} {
		assert.Contains(t, read(t, file), fmt.Sprintf("Python 3.%s to 3.%s", oldest, newest), file)
	}
}

// README names the versions of Go that make go-versions runs, of which the first is the oldest that go.mod allows.
func TestVersionsOfGoAgree(t *testing.T) {
	m := regexp.MustCompile(`(?m)^GO_VERSIONS \?= go(1\.\d+)(\.\d+) go(1\.\d+\.\d+)$`).FindStringSubmatch(read(t, "../Makefile"))
	require.NotNil(t, m)
	assert.Contains(t, read(t, "../go.mod"), "\ngo "+m[1]+".0\n")
	assert.Contains(t, read(t, "../README.md"), "| "+m[3]+", "+m[1]+m[2]+" |")
}

func read(t *testing.T, file string) string {
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(content)
}

func number(t *testing.T, digits string) (n int) {
	_, err := fmt.Sscan(digits, &n)
	require.NoError(t, err)
	return n
}
