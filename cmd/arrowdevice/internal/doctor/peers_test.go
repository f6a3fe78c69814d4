package doctor

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// known returns what peers.py says of each peer: "gives" and "takes", by protocol.
func known(t *testing.T) (peers map[string]map[string]map[string][]string) {
	t.Helper()
	read := `import ast, json, sys
for node in ast.parse(sys.argv[1]).body:
    if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "PEERS":
        print(json.dumps(ast.literal_eval(node.value)))`
	out, err := exec.Command("python3", "-c", read, peersScript).Output()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(out, &peers))
	return peers
}

// proved returns the directions of the table in docs/interop.md that have tests, "from it" and "to it", by library and
// protocol. The names are as in peers.py.
func proved(t *testing.T) map[string]map[string][2]bool {
	t.Helper()
	page, err := os.ReadFile("../../../../docs/interop.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(page), "\n| with | on |")
	table, _, _ = strings.Cut(table, "\n\n")
	all := map[string]map[string][2]bool{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 6 || strings.HasPrefix(cells[1], "---") {
			continue
		}
		name, _, _ := strings.Cut(strings.TrimSpace(cells[1]), " ")
		name = strings.ReplaceAll(strings.ToLower(name), "-", ".")
		name = strings.TrimSuffix(name, ".cuda") // numba-cuda is imported as numba
		protocol := strings.TrimSpace(cells[3])
		if all[name] == nil {
			all[name] = map[string][2]bool{}
		}
		was := all[name][protocol]
		all[name][protocol] = [2]bool{was[0] || strings.TrimSpace(cells[4]) != "", was[1] || strings.TrimSpace(cells[5]) != ""}
	}
	require.Contains(t, all, "pyarrow")
	return all
}

// notPython are the rows of docs/interop.md that are no protocols between objects of Python, or are
// said in another way.
var notPython = []string{"functions in Go", "Arrow Flight", "CUDA memory and events", "device streams", "asynchronous streams"}

// peers.py and the list here have the same libraries; those that count as tested are in the table
// of docs/interop.md, with the same protocols.
func TestPeersAgreeWithTheTests(t *testing.T) {
	script, tests := known(t), proved(t)
	tests["cuda.core"]["CUDA Array Interface"] = [2]bool{false, true} // in functions of Go: test_go_extension_core.py
	assert.Len(t, peers, len(script))
	for _, peer := range peers {
		require.Contains(t, script, peer.Name)
		assert.Equal(t, tests[peer.Name] != nil, peer.Tested, peer.Name)
		if !peer.Tested {
			continue
		}
		var gives, takes []string
		for protocol, ways := range tests[peer.Name] {
			if slices.Contains(notPython, protocol) {
				continue
			}
			if ways[0] {
				gives = append(gives, protocol)
			}
			if ways[1] {
				takes = append(takes, protocol)
			}
		}
		assert.ElementsMatch(t, gives, slices.Collect(maps.Keys(script[peer.Name]["gives"])), "from %s", peer.Name)
		assert.ElementsMatch(t, takes, slices.Collect(maps.Keys(script[peer.Name]["takes"])), "to %s", peer.Name)
	}
}

// A file of the current folder with the name of a library is not that library.
func TestPeersAreNotOfTheCurrentFolder(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rmm.py"), []byte("raise RuntimeError('the wrong one')"), 0o666))
	t.Chdir(dir)
	p := examinePeer(context.Background(), "python3", Peer{Name: "rmm"}, time.Minute)
	assert.NotContains(t, p.Error, "the wrong one")
	assert.NotEmpty(t, p.State)
}
