//! The functions of bench/python by PyO3 and pyo3-arrow.

use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use pyo3::prelude::*;
use pyo3_arrow::error::PyArrowResult;
use pyo3_arrow::{PyRecordBatch, PyRecordBatchReader};

#[pyfunction]
fn empty() {}

#[pyfunction]
fn add(a: i64, b: i64) -> i64 {
    a.wrapping_add(b)
}

/// Works for n steps, each of which needs the one before, without the GIL.
#[pyfunction]
fn spin(py: Python<'_>, n: i64) -> i64 {
    py.detach(|| {
        let mut x: u64 = 1;
        for _ in 0..n {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
        }
        (x >> 1) as i64
    })
}

#[pyfunction]
fn rows(batch: PyRecordBatch) -> usize {
    batch.as_ref().num_rows()
}

#[pyfunction]
fn rows_of_stream(stream: PyRecordBatchReader) -> PyArrowResult<usize> {
    let mut total = 0;
    for batch in stream.into_reader()? {
        total += batch?.num_rows();
    }
    Ok(total)
}

/// A batch of this library, of one int64 column.
#[pyfunction]
fn batch(rows: i64) -> PyArrowResult<PyRecordBatch> {
    let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
    let column = Arc::new(Int64Array::from_iter_values(0..rows));
    Ok(RecordBatch::try_new(schema, vec![column])?.into())
}

#[pymodule]
mod by_pyo3 {
    #[pymodule_export]
    use super::{add, batch, empty, rows, rows_of_stream, spin};
}
