package flight

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/flightticket"
	"github.com/arrowdevice/arrowdevice/internal/sizeclass"
	"github.com/arrowdevice/arrowdevice/share"
)

// sentinels are the errors that a status says: by its code alone, or by a reason as well, where the code has further causes. An
// error is said as the first one that it wraps.
var sentinels = []struct {
	err    error
	code   codes.Code
	reason string
}{
	{share.ErrOwnerGone, codes.Unavailable, "OWNER_GONE"},
	{context.Canceled, codes.Canceled, ""},
	{context.DeadlineExceeded, codes.DeadlineExceeded, ""},
	{sizeclass.ErrLimit, codes.ResourceExhausted, "LIMIT"},
	{syscall.ENOMEM, codes.ResourceExhausted, "OUT_OF_MEMORY"}, // cudaalloc.OutOfMemory is ENOMEM
	{arrow.ErrInvalid, codes.InvalidArgument, ""},
	{arrow.ErrType, codes.InvalidArgument, "TYPE"},
	{arrow.ErrNotImplemented, codes.Unimplemented, ""},
	{device.ErrNotSupported, codes.Unimplemented, "NOT_SUPPORTED"},
	{arrow.ErrNotFound, codes.NotFound, ""},
	{arrow.ErrKey, codes.NotFound, "KEY"},
}

// domain is that of the reasons.
const domain = "github.com/arrowdevice/arrowdevice"

// newStatus returns the status of an error without one.
func newStatus(err error, text string) *status.Status {
	return withText(causeOf(err), text)
}

// causeOf returns the status of an error without one, and without a text.
func causeOf(err error) *status.Status {
	if errors.As(err, new(flightticket.OpenError)) && !hasStatus(err) && !errors.Is(err, share.ErrOwnerGone) {
		return status.New(codes.FailedPrecondition, "")
	}
	for _, s := range sentinels {
		if !errors.Is(err, s.err) {
			continue
		}
		st := status.New(s.code, "")
		if s.reason != "" {
			if with, err := st.WithDetails(&errdetails.ErrorInfo{Reason: s.reason, Domain: domain}); err == nil {
				return with
			}
		}
		return st
	}
	return status.New(codes.Unknown, "")
}

// sentinelOf returns the error that a status says, or nil. A reason that is not known says what the code says without one.
func sentinelOf(st *status.Status) (said error) {
	reason := reasonOf(st)
	for _, s := range sentinels {
		switch {
		case s.code != st.Code():
		case s.reason == reason:
			return s.err
		case s.reason == "":
			said = s.err
		}
	}
	return said
}

func reasonOf(st *status.Status) string {
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == domain {
			return info.GetReason()
		}
	}
	return ""
}

// withText returns a status with a text that arrives: Protocol Buffers refuse one that is not UTF-8, and gRPC a long one.
func withText(st *status.Status, text string) *status.Status {
	p := st.Proto()
	p.Message = fitting(strings.ToValidUTF8(text, string(utf8.RuneError)), len(p.Details) > 0)
	return status.FromProto(p)
}

// maxText is how many bytes of the end of a stream a text may take. gRPC's library in C++ refuses some ends of more than 8192 bytes, in
// which the details of a status, the names of the fields, and the fields of a program's interceptors have a place as well.
const maxText = 7000

// fitting returns the beginning of a text that takes at most maxText bytes. gRPC encodes it as a URL, and repeats it in base64 if the
// status has details.
func fitting(text string, repeated bool) string {
	size := 0
	for i, r := range text {
		end := i + utf8.RuneLen(r)
		if ' ' <= r && r <= '~' && r != '%' {
			size++
		} else {
			size += 3 * (end - i)
		}
		if size > maxText || repeated && size+base64.RawStdEncoding.EncodedLen(end) > maxText {
			return fmt.Sprintf("%s … (%d more bytes)", text[:i], len(text)-i)
		}
	}
	return text
}
