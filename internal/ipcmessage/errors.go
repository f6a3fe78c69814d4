package ipcmessage

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
)

// Error names a part of a message that is not as it must be.
type Error struct {
	Field string // "metadata", "body", "schema", "RecordBatch.nodes[3]"
	Text  string // the fault
	Limit bool   // it exceeds the limit of the checker
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s: %v", e.Field, e.Text, arrow.ErrInvalid) }

// Unwrap returns arrow.ErrInvalid.
func (e *Error) Unwrap() error { return arrow.ErrInvalid }

// Invalid returns an [Error] about a part of a message.
func Invalid(field, text string, args ...any) error {
	return &Error{Field: field, Text: fmt.Sprintf(text, args...)}
}

func tooMuch(field, text string, args ...any) error {
	return &Error{Field: field, Text: fmt.Sprintf(text, args...), Limit: true}
}

func errMetadata(text string, args ...any) error { return Invalid("metadata", text, args...) }
