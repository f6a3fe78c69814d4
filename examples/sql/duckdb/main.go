// Command duckdb adds a column to the result of a query on a GPU, and makes a table of what comes back:
//
//	go run github.com/arrowdevice/arrowdevice/cudasim/run go run -tags duckdb_arrow ./duckdb
//
// On a real GPU, it runs without cudasim/run.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/duckdb/duckdb-go/v2"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/examples/sql/lag"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

func main() {
	ctx := context.Background()
	gpu, err := cudaalloc.Open(0)
	if err != nil {
		log.Fatalf("%v; without a GPU: go run github.com/arrowdevice/arrowdevice/cudasim/run go run -tags duckdb_arrow ./duckdb", err)
	}
	connector := must(duckdb.NewConnector("", nil))
	defer connector.Close()
	conn := must(connector.Connect(ctx))
	defer conn.Close()
	db := sql.OpenDB(connector)
	defer db.Close()

	must(db.ExecContext(ctx, `create table tide as select i as minute, i * 7919 % 1000 as level from range(5000) t(i)`))
	addPrevious(ctx, db, must(duckdb.NewArrowFromConn(conn)), gpu, must(hostpinned.NewAllocator(gpu)))
	var rows, moves, want int64
	check(db.QueryRowContext(ctx, `select count(*), sum(abs(level - previous))::bigint from tides`).Scan(&rows, &moves))
	check(db.QueryRowContext(ctx, `select sum(abs(level - before))::bigint from
		(select level, lag(level, 1, 0) over (order by minute) as before from tide)`).Scan(&want))
	fmt.Printf("%d rows, the level moves by %d, in SQL by %d\n", rows, moves, want)
	check(gpu.Flush(ctx))                        // memory is freed after work on the GPU; cudasim/run -leaks lists what is left
	for _, left := range cdevice.LiveObjects() { // with CDEVICE_TRACE=1
		fmt.Println("not released:", left)
	}
}

// addPrevious makes a table of the result of a query and a column that a library of the GPU makes.
func addPrevious(ctx context.Context, db *sql.DB, conn *duckdb.Arrow, gpu *cudaalloc.Device, mem memory.Allocator) {
	rows := must(conn.QueryContext(ctx, `select minute, level from tide order by minute`))
	defer rows.Release()
	here := must(cdevice.WrapRecordReader(rows, device.CPUDevice()))
	defer here.Release()
	there := must(here.CopyTo(ctx, gpu))
	defer there.Release()

	var in, out cdevice.CArrowDeviceArrayStream
	check(cdevice.ExportRecordReader(there, &in))
	check(lag.Batches(ctx, gpu, &in, "level", "previous", &out)) // any library: it takes in and fills out

	more := must(cdevice.ImportRecordReader(&out))
	defer more.Release()
	back := more.HostReader(ctx, mem)
	defer back.Release()
	release := must(conn.RegisterView(back, "from_gpu"))
	defer release()
	must(db.ExecContext(ctx, `create table tides as from from_gpu; drop view from_gpu`)) // reads the stream
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
