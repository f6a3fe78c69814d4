package triton

import (
	"strings"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// checkRegionName checks the name of a region. It must be one that a URL has as it is, since Triton does not decode the
// names in paths of its HTTP API: by that, an escaped name is that of another region.
func checkRegionName(name string) error {
	escaped := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-._~", c)
	}
	if name == "" || name == "." || name == ".." || strings.ContainsFunc(name, escaped) {
		return fielderr.Invalid(opRegion, "name", quoted(name), `letters of ASCII, digits, "-", ".", "_" and "~", which paths of Triton's HTTP API do not escape`)
	}
	return nil
}
