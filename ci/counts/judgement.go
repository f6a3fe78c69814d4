package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// judgement is a comparison of this tree with a base.
type judgement struct {
	base             string
	here, there      program
	before, after    table
	head             string
	file, fileBefore table
}

// newJudgement builds the programs of both.
func newJudgement(out, base string) (j *judgement, err error) {
	j = &judgement{base: base, before: table{}, after: table{}}
	err = both(
		func() (err error) { j.here, err = build(".", filepath.Join(out, "here")); return err },
		func() (err error) { j.there, err = buildBase(base, filepath.Join(out, "base")); return err })
	if err != nil {
		return nil, err
	}
	if j.head, j.file, err = readTable(fileName); err != nil {
		return nil, err
	}
	_, j.fileBefore, err = readTable(filepath.Join(baseFolder, fileName))
	return j, err
}

// attempts is how often both are measured before a growth counts: noise only adds, and not each time.
const attempts = 3

func (j *judgement) measure(w io.Writer) error {
	for i := range attempts {
		err := both(func() error { return j.here.measureInto(j.after) }, func() error { return j.there.measureInto(j.before) })
		found := j.growths()
		if err != nil || len(found) == 0 {
			return err
		}
		fmt.Fprintf(w, "counts: measurement %d of %d: %v\n", i+1, attempts, found)
	}
	return nil
}

func (p program) measureInto(t table) error {
	measured, err := p.measure()
	t.merge(measured)
	return err
}

// growths are those that the file does not accept.
func (j *judgement) growths() []growth {
	return accepted(growths(j.before, j.after), j.fileBefore, j.file)
}

// accept gives the file the lines of the paths that have grown, and those of the paths that are measured.
func (j *judgement) accept() error {
	missing, surplus := unlisted(j.after, j.file)
	for _, g := range j.growths() {
		missing = append(missing, g.path)
	}
	for _, path := range missing {
		j.file[path] = j.after[path]
	}
	for _, path := range surplus {
		delete(j.file, path)
	}
	return os.WriteFile(fileName, []byte(j.file.text(j.head)), 0o644)
}

var errGrown = errors.New("counts: either make these paths cheap again, or accept their growth: put the lines above into " + fileName +
	" with the same change. make counts-accept does so, with the counts of its machine")

// verdict prints what has grown, with the lines that would accept it.
func (j *judgement) verdict(w io.Writer) error {
	fmt.Fprintf(w, "counts: %d paths, compared with %.12s\n", len(j.after), j.base)
	lines, found := table{}, 0
	for _, g := range j.growths() {
		fmt.Fprintln(w, g)
		lines[g.path] = j.after[g.path]
		found++
	}
	missing, surplus := unlisted(j.after, j.file)
	for _, path := range missing {
		fmt.Fprintf(w, "%s: has no line in %s\n", path, fileName)
		lines[path] = j.after[path]
	}
	for _, path := range surplus {
		fmt.Fprintf(w, "%s: is measured no longer, and has a line in %s\n", path, fileName)
	}
	if found+len(missing)+len(surplus) == 0 {
		return nil
	}
	fmt.Fprint(w, lines.text(""))
	return errGrown
}
