package metamorphic

// Source is a program as Go.
func Source(p Program, world string) string { return p.String() }
