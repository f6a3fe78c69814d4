package ci

import (
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	// linkPattern matches a Markdown link or image, and a definition of one: [name]: target.
	linkPattern = regexp.MustCompile(`\]\(([^()\s]+)\)|(?m)^\[[^\]]+\]: (\S+)$`)
	// namePattern matches a file that a page names as code, with the files that a star stands for, or a test in Go.
	namePattern = regexp.MustCompile("`(?:([\\w./*-]+\\.(?:go|md|c|h|cc|py|sh|svg))|(Test\\w+)[/\\w]*)`")
	// testPattern matches a test function.
	testPattern = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	// fencePattern matches blocks of code, in which brackets mean something else.
	fencePattern = regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```$")
)

// notOurs are names of files in other repositories.
var notOurs = []string{"abi.h", "cuda.h"}

func TestLinksLeadSomewhere(t *testing.T) {
	files := repositoryFiles(t)
	pages := 0
	eachFile(t, ".md", func(page, content string) {
		pages++
		for _, problem := range badLinks(files, page, content) {
			t.Errorf("%s: %s", page, problem)
		}
	})
	assert.GreaterOrEqual(t, pages, 10)
}

// A picture is well-formed, and has colours for light and for dark pages.
func TestPicturesCanBeRead(t *testing.T) {
	pictures := 0
	eachFile(t, ".svg", func(name, content string) {
		pictures++
		for dec := xml.NewDecoder(strings.NewReader(content)); ; {
			if _, err := dec.Token(); errors.Is(err, io.EOF) {
				break
			} else if !assert.NoError(t, err, name) {
				return
			}
		}
		assert.Contains(t, content, "prefers-color-scheme: dark", name)
	})
	assert.NotZero(t, pictures)
}

// repositoryFiles returns the files of the repository, and the test functions in Go as if they were files beside their
// own: the text of pages, and "" for others.
func repositoryFiles(t *testing.T) map[string]string {
	files := map[string]string{}
	err := fs.WalkDir(os.DirFS(".."), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "build" || name != "." && strings.HasPrefix(d.Name(), ".") && name != ".github"):
			return fs.SkipDir
		case d.IsDir():
			files[name] = ""
			return nil
		}
		files[name] = ""
		isTest := strings.HasSuffix(name, "_test.go")
		if !isTest && path.Ext(name) != ".md" {
			return nil
		}
		content, err := os.ReadFile(filepath.Join("..", name))
		if !isTest {
			files[name] = string(content)
		}
		for _, m := range testPattern.FindAllStringSubmatch(string(content), -1) {
			files[path.Dir(name)+"/"+m[1]] = ""
		}
		return err
	})
	require.NoError(t, err)
	return files
}

// badLinks returns the links of a page that lead nowhere, and the names of files and tests that are not there.
func badLinks(files map[string]string, page, content string) (problems []string) {
	for _, m := range linkPattern.FindAllStringSubmatch(fencePattern.ReplaceAllString(content, ""), -1) {
		target, isOwn := strings.CutPrefix(m[1]+m[2], "https://github.com/arrowdevice/arrowdevice/blob/main/")
		if strings.Contains(target, "://") {
			continue
		}
		name, anchor, hasAnchor := strings.Cut(target, "#")
		file := page
		if isOwn { // of a page that is published elsewhere, too
			file = name
		} else if name != "" {
			file = path.Join(path.Dir(page), name)
		}
		text, ok := files[file]
		if !ok {
			problems = append(problems, "a link to "+file+", which is not there")
		} else if hasAnchor && !hasHeading(text, anchor) {
			problems = append(problems, "a link to "+target+", which is no heading")
		}
	}
	for _, m := range namePattern.FindAllStringSubmatch(content, -1) {
		if name := m[1] + m[2]; !hasFile(files, page, name) {
			problems = append(problems, "it names "+name+", which is not there")
		}
	}
	return problems
}

// hasHeading reports whether a page has the anchor: its own, or that of a heading, which is its
// words in lower case without punctuation.
func hasHeading(text, anchor string) bool {
	if strings.Contains(text, `<a id="`+anchor+`">`) {
		return true
	}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
		words = regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(words, "")
		if strings.ReplaceAll(words, " ", "-") == anchor {
			return true
		}
	}
	return false
}

// hasFile reports whether name, in which a star stands for any characters, is a file: seen
// from the root, from the page, or, where it has no folder, anywhere.
func hasFile(files map[string]string, page, name string) bool {
	if slices.Contains(notOurs, name) {
		return true
	}
	pattern := name
	for file := range files {
		candidates := []string{file, strings.TrimPrefix(file, path.Dir(page)+"/")}
		if !strings.Contains(name, "/") {
			candidates = append(candidates, path.Base(file))
		}
		for _, candidate := range candidates {
			if ok, _ := path.Match(pattern, candidate); ok {
				return true
			}
		}
	}
	return false
}
