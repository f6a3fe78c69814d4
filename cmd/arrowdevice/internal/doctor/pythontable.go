package doctor

import (
	"fmt"
	"strings"
)

// python writes the peers: those that are there as rows, the others as a line.
func (t *table) python(p Python) {
	if p.Command == "" {
		return
	}
	t.heading(strings.TrimSpace("Python " + p.Version))
	if p.Error != "" {
		t.painted(p.Command, p.Error, t.style.Red)
		return
	}
	t.row("interpreter", p.Path)
	var there []Peer
	var absent, untested []string
	for _, peer := range p.Peers {
		if peer.State == "absent" {
			absent = append(absent, peer.Name)
			continue
		}
		there = append(there, peer)
		if peer.State == "ok" && !peer.Tested {
			untested = append(untested, peer.Name)
		}
	}
	t.peers(there)
	if len(absent) > 0 {
		t.row("not installed", strings.Join(absent, ", "))
	}
	if len(untested) > 0 {
		t.noted("not tested yet", strings.Join(untested, ", "), "what is said of them was read in their sources")
	}
}

// peers writes a line for what Go takes from each, and one for what Go gives to it, if that differs.
func (t *table) peers(there []Peer) {
	for _, peer := range there {
		name := strings.TrimSpace(peer.Name + " " + peer.Version)
		if peer.State != "ok" {
			t.painted(name, peer.State+": "+peer.Error, t.style.Red)
			continue
		}
		gives, takes := protocols(peer.Gives), protocols(peer.Takes)
		value := fmt.Sprintf("from it %s; to it %s", gives, takes)
		switch {
		case len(peer.Gives)+len(peer.Takes) == 0:
			value = "this version has no protocol of this library"
		case gives == takes:
			value = "both ways " + gives
		}
		t.noted(name, value, peer.Note)
	}
}

func protocols(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}
