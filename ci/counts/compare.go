package main

import (
	"fmt"
	"slices"
)

// tolerance is the growth of a count that is not named.
const tolerance = 0.03

// slack is how much more of each column is no growth: what happens once in many operations.
var slack = counts{0, 0.05, 16, 0.05, 0.05, 0.05, 0.05, 0.05}

// grew reports whether a count of a column is more than noise above another one.
func grew(column int, before, after float64) bool { return after > before*(1+tolerance)+slack[column] }

// growth is a path with a count that has grown.
type growth struct {
	path          string
	column        int
	before, after float64
}

func (g growth) String() string {
	text := fmt.Sprintf("%s: %s grew from %v to %v", g.path, columns[g.column], number(g.before), number(g.after))
	if g.before > 0 {
		text += fmt.Sprintf(" (%+.1f %%)", (g.after/g.before-1)*100)
	}
	return text
}

// growths are the counts that have grown, of the paths that were measured before and after.
func growths(before, after table) (all []growth) {
	for _, path := range after.paths() {
		old, ok := before[path]
		for i, n := range after[path] {
			if ok && grew(i, old[i], n) {
				all = append(all, growth{path, i, old[i], n})
			}
		}
	}
	return all
}

// accepted removes the growths whose path has another line in the file than before, if that line has the count.
func accepted(all []growth, fileBefore, file table) []growth {
	return slices.DeleteFunc(slices.Clone(all), func(g growth) bool {
		now, ok := file[g.path]
		return ok && now != fileBefore[g.path] && !grew(g.column, now[g.column], g.after)
	})
}

// unlisted returns the paths without a line in the file, and the lines without a path.
func unlisted(measured, file table) (missing, surplus []string) {
	for _, path := range measured.paths() {
		if _, ok := file[path]; !ok {
			missing = append(missing, path)
		}
	}
	for _, path := range file.paths() {
		if _, ok := measured[path]; !ok {
			surplus = append(surplus, path)
		}
	}
	return missing, surplus
}
