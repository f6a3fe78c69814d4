package ci

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
)

// A device has one name, in Go and in Python: that of the header, or its number if the header has none.
func TestDeviceTypesHaveTheNamesOfTheHeader(t *testing.T) {
	header, err := os.ReadFile("../cdevice/include/arrow_device.h")
	require.NoError(t, err)
	names := map[int]string{}
	for _, m := range regexp.MustCompile(`(?m)^#define ARROW_DEVICE_(\w+) (\d+)$`).FindAllStringSubmatch(string(header), -1) {
		number, err := strconv.Atoi(m[2])
		require.NoError(t, err)
		names[number] = strings.ToLower(m[1])
	}
	require.NotEmpty(t, names)
	inPython := devicesInPython(t, 30)
	for number := range inPython {
		name, ok := names[number]
		if !ok {
			name = fmt.Sprintf("device_type(%d)", number)
		}
		id := device.ID{Type: device.Type(number), Ordinal: 1}
		assert.Equal(t, name, id.Type.String())
		if id.Type == device.CPU {
			id.Ordinal = device.NoOrdinal
		}
		assert.Equal(t, id.String(), inPython[number])
	}
}

// devicesInPython is the names of the devices with number 1 of n types, as the Python package has them.
func devicesInPython(t *testing.T, n int) []string {
	t.Helper()
	program := fmt.Sprintf("import runpy\nname = runpy.run_path('../python/arrowdevice/_devices.py')['device_name']\n"+
		"print(*(name(i, 1) for i in range(%d)))", n)
	out, err := exec.Command("python3", "-c", program).CombinedOutput()
	require.NoError(t, err, "%s", out)
	names := strings.Fields(string(out))
	require.Len(t, names, n)
	return names
}
