package tree

import (
	"slices"

	"github.com/arrowdevice/arrowdevice/internal/watch"
)

// Join returns an owner of the memory of several owners, with a reference to each: nodes are in their memory.
func Join(owners []*Owner, nodes []Node) *Owner {
	j := new(joined)
	for _, m := range owners {
		if !slices.Contains(j.owners, m) {
			j.owners = append(j.owners, m)
		}
	}
	if len(j.owners) == 1 {
		return owners[0].Retain()
	}
	own := Own(j)
	j.waits = &own.ending.waits
	own.Size = Bytes(nodes)
	for _, m := range j.owners {
		if home := m.Retain().base().Home; own.Home == nil {
			own.Home = home
		}
	}
	return own
}

// joined is references to owners.
type joined struct {
	owners []*Owner
	waits  *watch.Place // for all of them together
}

// Release drops the references, even if a callback of a producer panics.
func (j *joined) Release() {
	for _, m := range j.owners {
		m.Waits().Take(j.waits)
		defer m.Release()
	}
}
