package triton

// unknownEnds are the clients that sent requests whose ends are not known. The server of each may still access the memory, whatever
// the servers of others have closed.
type unknownEnds map[*Client]bool

func (u *unknownEnds) add(c *Client) {
	if *u == nil {
		*u = unknownEnds{}
	}
	(*u)[c] = true
}
