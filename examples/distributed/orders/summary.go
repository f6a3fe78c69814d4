package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// group is what orders are summed up by. Orders without a country have the country "?".
type group struct {
	country string
	day     arrow.Date32
}

// totals are those of a group: the orders with a code that can be read, their units, their price
// as far as it is known, and the number of orders with a code that cannot be read.
type totals struct{ orders, units, cents, rejected int64 }

type summary map[group]*totals

// maxCents bounds the price of a unit, so that no total of fewer than 2^31 orders overflows.
const maxCents = math.MaxInt64 / 99 / math.MaxInt32

// add adds the orders of a batch. first is the number of its first row, for errors.
func (s summary) add(batch arrow.RecordBatch, first int64) error {
	times, err := column[*array.Timestamp](batch, "time")
	if err != nil {
		return err
	}
	countries, err := column[*array.String](batch, "country")
	if err != nil {
		return err
	}
	prices, err := column[*array.Int64](batch, "cents")
	if err != nil {
		return err
	}
	codes, err := column[*array.String](batch, "code")
	if err != nil {
		return err
	}
	day := int64(24 * time.Hour / times.DataType().(*arrow.TimestampType).Unit.Multiplier())
	for i := range int(batch.NumRows()) {
		if times.IsNull(i) {
			return fmt.Errorf("%w: column time is null in row %d", arrow.ErrInvalid, first+int64(i))
		}
		country := "?"
		if countries.IsValid(i) {
			country = strings.ToUpper(strings.Trim(countries.Value(i), " ")) // no copy if it is upper case
		}
		group := s.of(country, floorDiv(int64(times.Value(i)), day))
		units, ok := int64(0), false
		if codes.IsValid(i) {
			units, ok = unitsOf(codes.Value(i))
		}
		if !ok {
			group.rejected++
			continue
		}
		group.orders++
		group.units += units
		if prices.IsValid(i) {
			price := prices.Value(i)
			if price < -maxCents || price > maxCents {
				return fmt.Errorf("%w: column cents is %d in row %d, beyond %d", arrow.ErrInvalid, price, first+int64(i), maxCents)
			}
			group.cents += price * units
		}
	}
	return nil
}

// of returns the totals of a group. country may be a view of a batch's memory.
func (s summary) of(country string, day int64) *totals {
	t := s[group{country, arrow.Date32(day)}]
	if t == nil {
		t = &totals{}
		s[group{strings.Clone(country), arrow.Date32(day)}] = t
	}
	return t
}

var schema = arrow.NewSchema([]arrow.Field{
	{Name: "country", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "day", Type: arrow.FixedWidthTypes.Date32, Nullable: true},
	{Name: "orders", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	{Name: "units", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	{Name: "cents", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	{Name: "rejected", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
}, nil)

// batch returns the totals, sorted by country and day. It is owned by the caller.
func (s summary) batch() arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	groups := slices.SortedFunc(maps.Keys(s), func(a, b group) int {
		return cmp.Or(cmp.Compare(a.country, b.country), cmp.Compare(a.day, b.day))
	})
	for _, g := range groups {
		b.Field(0).(*array.StringBuilder).Append(g.country)
		b.Field(1).(*array.Date32Builder).Append(g.day)
		for i, total := range []int64{s[g].orders, s[g].units, s[g].cents, s[g].rejected} {
			b.Field(2 + i).(*array.Int64Builder).Append(total)
		}
	}
	return b.NewRecordBatch()
}

// column returns the only column of a name, borrowed from the batch.
func column[A arrow.Array](batch arrow.RecordBatch, name string) (A, error) {
	var none A
	at := batch.Schema().FieldIndices(name)
	if len(at) != 1 {
		return none, fmt.Errorf("%w: %d columns %q, want 1", arrow.ErrInvalid, len(at), name)
	}
	col, ok := batch.Column(at[0]).(A)
	if !ok {
		return none, fmt.Errorf("%w: column %s is %s, want %T", arrow.ErrType, name, batch.Column(at[0]).DataType(), none)
	}
	return col, nil
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
