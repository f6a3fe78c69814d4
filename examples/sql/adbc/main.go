// Command adbc adds a column to the result of a query on a GPU, and ingests what comes back:
//
//	go run github.com/arrowdevice/arrowdevice/cudasim/run go run ./adbc DRIVER
//
// On a real GPU, it runs without cudasim/run. DRIVER is the ADBC driver of SQLite: libadbc_driver_sqlite.so of the Python
// package adbc-driver-sqlite.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-adbc/go/adbc/drivermgr"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/examples/sql/lag"
	"github.com/arrowdevice/arrowdevice/interop/dlpack"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

func main() {
	ctx := context.Background()
	gpu, err := cudaalloc.Open(0)
	if err != nil {
		log.Fatalf("%v; without a GPU: go run github.com/arrowdevice/arrowdevice/cudasim/run go run ./adbc DRIVER", err)
	}
	db := must(drivermgr.Driver{}.NewDatabase(map[string]string{"driver": os.Args[1], "uri": ":memory:"}))
	defer db.Close()
	conn := must(db.Open(ctx))
	defer conn.Close()

	execute(ctx, conn, `create table tide as with recursive t(i) as (select 0 union all select i + 1 from t where i < 4999)
		select i as minute, i * 7919 % 1000 as level from t`)
	addPrevious(ctx, conn, gpu, must(hostpinned.NewAllocator(gpu)))
	fmt.Printf("%d rows, the level moves by %d, in SQL by %d\n", number(ctx, conn, `select count(*) from tides`),
		number(ctx, conn, `select sum(abs(level - previous)) from tides`), number(ctx, conn, `select sum(abs(level - before))
			from (select level, lag(level, 1, 0) over (order by minute) as before from tide)`))
	check(gpu.Flush(ctx))                        // memory is freed after work on the GPU; cudasim/run -leaks lists what is left
	for _, left := range cdevice.LiveObjects() { // with CDEVICE_TRACE=1
		fmt.Println("not released:", left)
	}
}

// addPrevious ingests the result of a query and a column that a library of the GPU makes.
func addPrevious(ctx context.Context, conn adbc.Connection, gpu *cudaalloc.Device, mem memory.Allocator) {
	rows, end := query(ctx, conn, `select minute, level from tide order by minute`)
	defer end()
	here := must(cdevice.WrapRecordReader(rows, device.CPUDevice()))
	defer here.Release()
	there := must(here.CopyTo(ctx, gpu))
	defer there.Release()

	lags := must(lag.New(ctx, gpu))
	defer lags.Close()
	field := arrow.Field{Name: "previous", Type: arrow.PrimitiveTypes.Int64}
	schema := must(there.Schema().AddField(2, field))
	more := must(there.MapTo(schema, func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) {
		level := b.Column(1)
		defer level.Release()
		in, err := dlpack.Export(level, dlpack.WithStream(lags.Stream()))
		if err != nil {
			return nil, err
		}
		out, err := lags.Tensor(ctx, in) // takes in
		if err != nil {
			return nil, err
		}
		previous, err := dlpack.Import(out, dlpack.WithStream(lags.Stream()))
		if err != nil {
			return nil, err
		}
		defer previous.Release()
		return b.WithColumn(field, previous)
	}))
	defer more.Release()
	back := more.HostReader(ctx, mem)
	defer back.Release()
	must(adbc.IngestStream(ctx, conn, back, "tides", adbc.OptionValueIngestModeCreate, adbc.IngestStreamOptions{}))
}

// query returns the result of SQL, and a function that ends it.
func query(ctx context.Context, conn adbc.Connection, sql string) (rows array.RecordReader, end func()) {
	statement := must(conn.NewStatement())
	check(statement.SetSqlQuery(sql))
	rows, _, err := statement.ExecuteQuery(ctx)
	check(err)
	return rows, func() {
		rows.Release()
		check(statement.Close())
	}
}

func execute(ctx context.Context, conn adbc.Connection, sql string) {
	statement := must(conn.NewStatement())
	check(statement.SetSqlQuery(sql))
	_, err := statement.ExecuteUpdate(ctx)
	check(errors.Join(err, statement.Close()))
}

// number returns the one number that is the result of SQL.
func number(ctx context.Context, conn adbc.Connection, sql string) int64 {
	rows, end := query(ctx, conn, sql)
	defer end()
	if !rows.Next() {
		log.Fatal(sql, ": ", rows.Err())
	}
	return rows.RecordBatch().Column(0).(*array.Int64).Value(0)
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
