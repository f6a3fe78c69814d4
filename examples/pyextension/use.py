import duckdb
import polars as pl
import totals

trips = pl.DataFrame({"city": ["Oslo", "Lima", "Pune"], "km": [12.5, None, 3.0]})
more = totals.add_running_total(trips, "km")
print(pl.DataFrame(more))
print(duckdb.sql("select city, km_total from more where km_total > 12.5"))
