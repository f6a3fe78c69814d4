package ci

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// rooms are the packages that cdevice is made of, in the order in which a struct comes in: none
// imports one behind it.
var rooms = []string{
	"internal/fielderr", "internal/layout", "internal/tree", "internal/hostread", "internal/copyplan", "internal/validate", "internal/cstruct", "internal/items", "cdevice",
}

func TestRoomsHaveAnOrder(t *testing.T) {
	all := packages(t)
	for i, room := range rooms {
		for _, imported := range all[room].Imports {
			if below := slices.Index(rooms, strings.TrimPrefix(imported, module)); below >= 0 {
				assert.Less(t, below, i, "%s imports %s", room, imported)
			}
		}
	}
	t.Log(strings.Join(rooms, " < "))
}
