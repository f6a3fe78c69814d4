package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTablesAreReadAsTheyAreWritten(t *testing.T) {
	want := table{"a path, 100 col": counts{12345678, 1.04, 144, 0, 2.01}, "b": counts{7: 1}}
	head, got, err := parse(want.text("# of it\n#\n# all\n"))
	require.NoError(t, err)
	assert.Equal(t, want, got)
	assert.Equal(t, "# of it\n#\n# all\n", head)
}

func TestWhatIsNoLineIsAnError(t *testing.T) {
	for _, text := range []string{"export  1 2 3", "export", "export  1 2 3 4 5 6 7 1.2.3", "export  1 2 3 4 5 6 7 8 9"} {
		_, _, err := parse(text)
		assert.ErrorContains(t, err, "export", text)
	}
}

// The file of this tree is as accepting would write it.
func TestTheFileIsInOrder(t *testing.T) {
	head, lines, err := readTable("../../" + fileName)
	require.NoError(t, err)
	assert.NotEmpty(t, lines)
	assert.Equal(t, lines.text(head), content(t, "../../"+fileName))
}

func TestMergesKeepTheLeast(t *testing.T) {
	all := table{"a": counts{3, 1}}
	all.merge(table{"a": counts{2, 5}, "b": counts{1}})
	assert.Equal(t, table{"a": counts{2, 1}, "b": counts{1}}, all)
}
