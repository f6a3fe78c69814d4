// Package version is what this program was built of.
package version

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
)

// Info is what arrowdevice version prints, and its --json. Fields are added to it and never renamed.
type Info struct {
	Arrowdevice string `json:"arrowdevice"`        // the version of this module
	Revision    string `json:"revision,omitempty"` // the commit, where it was built in a checkout
	Modified    bool   `json:"modified,omitempty"` // the checkout had changes that are not in the commit
	Go          string `json:"go"`
	OS          string `json:"os"`
	Arch        string `json:"arch"`
	Cgo         bool   `json:"cgo"`
}

// Read returns what this program was built of.
func Read() Info {
	i := Info{Arrowdevice: "(unknown)", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return i
	}
	i.Arrowdevice = build.Main.Version
	for _, s := range build.Settings {
		switch s.Key {
		case "CGO_ENABLED":
			i.Cgo = s.Value == "1"
		case "vcs.revision":
			i.Revision = s.Value
		case "vcs.modified":
			i.Modified = s.Value == "true"
		}
	}
	return i
}

// Print writes it for a person.
func (i Info) Print(w io.Writer) {
	facts := []string{i.Go, i.OS + "/" + i.Arch, "without cgo"}
	if i.Cgo {
		facts[2] = "cgo"
	}
	if i.Revision != "" {
		facts = append(facts, "commit "+i.Revision)
	}
	if i.Modified {
		facts = append(facts, "with changes")
	}
	fmt.Fprintf(w, "arrowdevice %s\n%s\n", i.Arrowdevice, strings.Join(facts, ", "))
}
