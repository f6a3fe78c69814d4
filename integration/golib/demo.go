//go:build cgo

package main

import (
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/arrowdevice/arrowdevice/pyextension"
)

func init() { pyextension.Func("make_demo_batch", makeDemoBatch, pyextension.WithParams("rows")) }

// makeDemoBatch makes the batch of demo.py: orders of a shop, one per row.
func makeDemoBatch(rows int64) (arrow.RecordBatch, error) {
	country := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	b := array.NewRecordBuilder(allocator, arrow.NewSchema([]arrow.Field{
		{Name: "order", Type: arrow.PrimitiveTypes.Int64},
		{Name: "price", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
		{Name: "customer", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "country", Type: country, Nullable: true},
		{Name: "items", Type: arrow.ListOf(arrow.PrimitiveTypes.Int32), Nullable: true},
	}, nil))
	defer b.Release()
	b.Reserve(int(rows))

	order := b.Field(0).(*array.Int64Builder)
	price := b.Field(1).(*array.Float64Builder)
	customer := b.Field(2).(*array.StringBuilder)
	countries := b.Field(3).(*array.BinaryDictionaryBuilder)
	items := b.Field(4).(*array.ListBuilder)
	item := items.ValueBuilder().(*array.Int32Builder)
	names := []string{"Brazil", "Ghana", "Japan", "Norway"}
	for i := range rows {
		order.Append(i)
		if i%10 == 9 {
			price.AppendNull()
		} else {
			price.Append(float64(i%1000) / 8)
		}
		customer.Append("customer " + strconv.FormatInt(i%5000, 10))
		if err := countries.AppendString(names[i%4]); err != nil {
			return nil, err
		}
		items.Append(true)
		for k := range i % 4 {
			item.Append(int32(i + k))
		}
	}
	return b.NewRecordBatch(), nil
}
