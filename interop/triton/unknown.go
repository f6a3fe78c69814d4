package triton

// unknownEnds is the set of clients with a request of unknown end. The server of each may still access the memory, even after
// the servers of others have closed it.
type unknownEnds map[*Client]bool

func (u *unknownEnds) add(c *Client) {
	if *u == nil {
		*u = unknownEnds{}
	}
	(*u)[c] = true
}
